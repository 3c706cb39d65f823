"""`${NAME}` in the paths and commands of a task: which places have it, and what it becomes.

A name is looked up in the environment; `TASK_DIR`, `PYTHON` and `PYTHON_STDLIB` are always known, and
`WORKSPACE` stays as it stands until the workspace is known. `$${NAME}` is a literal `${NAME}` (one dollar
is taken off); anything else with a dollar is left to the shell.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Callable, Mapping
from typing import Any

from agent.taskfile import Document, Loc, Mistake, shown

WORKSPACE = "${WORKSPACE}"
_VARIABLE = re.compile(r"(\$*)\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_PLACES = frozenset({"path", "workspace", "clone", "run", "file", "api_base", "python"})


def expand_document(document: Document, known: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, Any]:
    """Give the document's data with its variables filled in; unset ones are added to `document.mistakes`."""

    def fill(text: str, loc: Loc) -> str:
        def one(match: re.Match[str]) -> str:
            escape, name = match.groups()
            if escape:
                return match[0]
            if name == "WORKSPACE" and "workspace" not in loc:
                return match[0]
            value = known.get(name, environment.get(name))
            if value is None:
                document.mistakes.append(Mistake(document.place(loc), f"{shown(loc)}: {_unset(name)}"))
                return match[0]
            return escape_text(value)

        return _VARIABLE.sub(one, text)

    filled = _walk(document.data, (), fill)
    return dict(filled)


def builtin_variables(directory: str) -> dict[str, str]:
    """Give the variables that every task has; `directory` is the task's folder."""
    return {"TASK_DIR": directory, "PYTHON": sys.executable, "PYTHON_STDLIB": sysconfig.get_path("stdlib")}


def escape_text(text: str) -> str:
    """Write `text` so that reading it again gives it back: `${X}` becomes `$${X}`, except the workspace's."""
    return _VARIABLE.sub(lambda m: m[0] if m[1] or m[0] == WORKSPACE else "$" + m[0], text)


def unescape_text(text: str) -> str:
    """Undo the escapes that `escape_text` wrote."""
    return _VARIABLE.sub(lambda m: m[0][1:] if m[1] else m[0], text)


def holds_variables(loc: Loc) -> bool:
    """Say whether a value at this location may use variables."""
    return loc[-1] in _PLACES or "params" in loc or (len(loc) == 2 and loc[0] == "context")


def map_variables(data: Any, change: Callable[[str], str]) -> Any:
    """Give `data` with every text that may use variables changed."""
    return _walk(data, (), lambda text, _: change(text))


def _walk(value: Any, loc: Loc, fill: Callable[[str, Loc], str]) -> Any:
    if isinstance(value, dict):
        return {key: _walk(item, (*loc, key), fill) for key, item in value.items()}
    if isinstance(value, list):
        return [_walk(item, (*loc, n), fill) for n, item in enumerate(value)]
    return fill(value, loc) if isinstance(value, str) and holds_variables(loc) else value


def _unset(name: str) -> str:
    if name == "WORKSPACE":
        return "${WORKSPACE} cannot be part of the workspace's own path"
    return f"${{{name}}} is not set in the environment; export it, or write $${{{name}}} for the text itself"
