"""The names a cell can use and how a cell is run: blocks in order, the last expression shown, errors with its own lines.

Variables that were set before an exception stay. The scaffold (`context`, `llm_query`, `answer`, …) is laid anew before each
cell, so a cell that overwrites a name harms only itself. Objects of a cell are looked at without their own code where that is
possible: it may raise, lie, hang or exit.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import inspect
import linecache
import sys
import types
import warnings
from collections import deque
from collections.abc import Callable
from random import seed
from traceback import TracebackException
from typing import Any

from agent.repl import interrupts

BLANK_ANSWER = {"content": "", "ready": False}
#: Characters of an answer that the journal and a prompt of the parent may have to carry.
MAX_ANSWER = 16 << 20
_MAX_NAME = 100
_FRAMES = 30
_SHOWN = "__shown__"
_INTERRUPTS = interrupts.__file__
_name_of_type = type.__dict__["__name__"].__get__  # a metaclass may lie about it, or raise


class Namespace:
    """The REPL's `__main__`; `show` takes what is printed for the model, whatever became of `sys.stdout`."""

    def __init__(self, scaffold: dict[str, Any], show: Callable[[str], Any]) -> None:
        self.module = types.ModuleType("__main__")
        sys.modules["__main__"] = self.module
        self.names: dict[str, Any] = self.module.__dict__
        self.scaffold = scaffold
        self.show = show
        self.names["answer"] = dict(BLANK_ANSWER)
        self._builtins = _own_builtins()
        self._built_in = dict(self._builtins.__dict__)
        self.lay_scaffold()

    def lay_scaffold(self) -> None:
        """Put the scaffold's names and the built-in ones back, whatever a cell did to them."""
        self._builtins.__dict__.update(self._built_in)
        self.names.update(self.scaffold)
        self.names["__builtins__"] = self._builtins
        if "print" in self.names and not callable(self.names["print"]):  # nothing could be seen from here on
            del self.names["print"]
        answer = self.names.get("answer")
        if type(answer) is not dict:
            content = answer if type(answer) is str else ""
            plain = _is(answer, dict)
            self.names["answer"] = dict.copy(answer) if plain else {"content": content, "ready": False}  # type: ignore[arg-type]

    def run(self, blocks: list[str], step: int) -> bool:
        """Run the blocks in order, stop at the first exception, print what is to be seen; True when all went well."""
        self.lay_scaffold()
        seed(step)
        for number, code in enumerate(blocks, 1):
            name = f"<step {step}>" if len(blocks) == 1 else f"<step {step}, block {number}>"
            try:
                linecache.cache[name] = (len(code), None, [line + "\n" for line in code.split("\n")], name)
                self.run_block(code, name)
            except BaseException as error:
                self._show_error(error)
                return False
        return True

    def answer(self) -> tuple[str, bool]:
        """Return the current answer's content as text and whether it is ready; raises what the objects in it raise."""
        answer = self.names.get("answer")
        if not _is(answer, dict):
            return ("", False) if answer is None else (str(answer)[:MAX_ANSWER], False)
        content = dict.get(answer, "content", "")  # type: ignore[arg-type]
        text = "" if content is None else content if type(content) is str else str(content)
        if len(text) > MAX_ANSWER:
            raise ValueError(
                f"the answer has {len(text)} characters, {MAX_ANSWER} are the most: write it to a file, and answer with its name"
            )
        return text, bool(dict.get(answer, "ready"))  # type: ignore[arg-type]

    def variables(self) -> list[tuple[str, str, int]]:
        """Return (name, type, size) of what the cells have made; size is len() where there is one, else -1."""
        rows = []
        for name, value in list(self.names.items()):
            if type(name) is not str or name.startswith("_") or name in self.scaffold or name == "answer":
                continue
            if _is(value, types.ModuleType):
                continue
            try:
                size = len(value)
            except KeyboardInterrupt:
                raise
            except BaseException:  # it has none, or its own code fails
                size = -1
            rows.append((_short(name), _short(_name_of_type(type(value))), size))
        return rows

    def run_block(self, code: str, name: str) -> None:
        """Run a block as one program, in one event loop when it awaits, and show the value of its last expression."""
        tree = ast.parse(code, name)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            target = ast.copy_location(ast.Name(_SHOWN, ast.Store()), last)
            tree.body[-1] = ast.copy_location(ast.Assign([target], last.value), last)
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.simplefilter("ignore", ResourceWarning)  # open(…).write(…) is how models write files
            warnings.showwarning = self._show_warning  # type: ignore[assignment]
            self._execute(compile(tree, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
            value = self.names.pop(_SHOWN, None)
            if value is not None:
                self.show(repr(value) + "\n")

    def _execute(self, code: types.CodeType) -> None:
        result = eval(code, self.names)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(_await(result))

    def _show_warning(self, message: Any, category: Any, filename: str, lineno: int, *_: Any) -> None:
        self.show(f"{filename}:{lineno}: {category.__name__}: {message}\n")

    def _show_error(self, error: BaseException) -> None:
        """Show the traceback from the cell's first line on, without the frames of this program."""
        kind = _short(_name_of_type(type(error)))
        try:
            if _is(error, SystemExit):
                told = "a cell cannot end the REPL; set answer['ready'] = True to finish"
                self.show(f"SystemExit: {error.code} ({told})\n")  # type: ignore[attr-defined]
                return
            shown = TracebackException(type(error), error, _last(error.__traceback__))
            own = [i for i, frame in enumerate(shown.stack) if frame.filename.startswith("<step ")]
            kept = shown.stack[own[0] :] if own else []
            shown.stack[:] = [frame for frame in kept if frame.filename != _INTERRUPTS]
            for line in shown.format(chain=True):
                self.show(line)
        except BaseException as broken:  # its own code fails, or it takes more time than the cell has
            self.show(f"{kind} (its traceback could not be shown: {_short(_name_of_type(type(broken)))})\n")


def _last(trace: types.TracebackType | None) -> types.TracebackType | None:
    """Return the traceback from its last frames on: a recursion may have left millions."""
    kept: deque[types.TracebackType] = deque(maxlen=_FRAMES)
    while trace is not None:
        kept.append(trace)
        trace = trace.tb_next
    return kept[0] if kept else None


def _own_builtins() -> types.ModuleType:
    """Make the cells a `builtins` of their own: what they replace in it cannot break this program or the library."""
    own = types.ModuleType("builtins", builtins.__doc__)
    own.__dict__.update(builtins.__dict__)
    sys.modules["builtins"] = own
    return own


def _is(value: Any, kind: type) -> bool:
    """Say what isinstance() says, without asking the object."""
    return issubclass(type(value), kind)


def _short(name: str) -> str:
    return name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}…"


async def _await(coroutine: Any) -> Any:
    return await coroutine
