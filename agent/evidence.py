"""The lines that an answer cites, opened again: `[document:line]` in a text, looked up in the context it was given over."""

from __future__ import annotations

import re

import msgspec

from agent.context import Context

_CITED = re.compile(r"\[([^\[\]\n]+?):(\d+)(?:-(\d+))?\]")
_BARE = re.compile(r"(?<![\w\[/.+@~-])([\w./~+@-]+\.[A-Za-z]\w*|[\w.+@-]+(?:/[\w.+@-]+)+):(\d+)(?:-(\d+))?\b")
_LINES = 5  # of a cited range that are shown


class Citation(msgspec.Struct, frozen=True):
    """A cited place and the text that stands there; `text` is None when there is no such place."""

    document: str
    line: int
    text: str | None


def citations(answer: str, context: Context) -> list[Citation]:
    """Return the places that an answer cites, each once, in the order in which it cites them."""
    found: dict[tuple[str, int], Citation] = {}
    for name, first, last in [*_CITED.findall(answer), *_BARE.findall(answer)]:
        name = name.strip().strip("`")
        if name not in context and not _plausible(name):
            continue
        for line in range(int(first), min(int(last or first), int(first) + _LINES - 1) + 1):
            found.setdefault((name, line), Citation(name, line, _text(context, name, line)))
    return list(found.values())


def _plausible(name: str) -> bool:
    """Tell a document that the answer made up from a word with a colon, as in [Note:1]."""
    return "." in name or "/" in name


def _text(context: Context, name: str, line: int) -> str | None:
    if name not in context or line < 1:
        return None
    try:
        rows = context[name].lines(line, line)
    except (OSError, ValueError):
        return None
    return rows[0].strip()[:400] if rows else None
