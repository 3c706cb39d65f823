"""Whether a summary may stand for its record, and which lines of the record it has to keep.

Lines that begin with TODO, DECISION, FAILED, FACT or an open checkbox are kept word for word, through any number of folds, as far
as they fit; the rest is found by CONTEXT(find=…). A line that says DONE, or a ticked box, closes the open one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent.tokens import count_tokens, cut

KEPT_TOKENS = 140  # of marked lines in one fold
_LINE_TOKENS = 60
_MARKED = re.compile(
    r"^\s*(?:[-*+]\s+)?(?:(?P<box>\[[ xX]\])\s*|(?P<word>TODO|TO-DO|OPEN|DECISION|DECIDED|FAILED|FACT|DONE)\b\s*[:\-–]\s*)"
    r"(?P<text>\S.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_OPEN = ("todo", "to-do", "open")
_EMPTY = ("null", "none", "n/a", "{}", "[]", '""')
_ERRORS = ("error:", "traceback", "<!doctype", "<html", '{"error"')
_REFUSAL = re.compile(r"(i'm sorry|i am sorry|i cannot|i can't|as an ai|sorry, )", re.IGNORECASE)


def problem_of(summary: str, record: str) -> str:
    """Say why a summary cannot stand for its record; an empty string when it can."""
    bare = summary.strip()
    if not bare or bare.lower() in _EMPTY:
        return "it is empty"
    if bare.lower().startswith(_ERRORS):
        return "it is an error text"
    if _REFUSAL.match(bare):
        return "it is a refusal"
    if _repeats(bare):
        return "it repeats one line"
    if count_tokens(bare) >= count_tokens(record):
        return "it is not shorter than the record"
    return ""


def with_marked(summary: str, record: str, tokens: int) -> str:
    """Return a summary of at most `tokens`, followed by the marked lines of its record that it lacks and that are still open."""
    text = cut(summary.strip(), tokens, "cut")
    lacking = [line for line in marked(record) if _bare(line) not in _bare(text)]
    room, kept = KEPT_TOKENS, []
    for line in reversed(lacking):  # the newest are the likeliest to be needed
        line = cut(line, _LINE_TOKENS, "cut")
        size = count_tokens(line) + 1
        if size > room:
            break
        kept.append(line)
        room -= size
    left = len(lacking) - len(kept)
    more = [f"… and {left} more marked lines: CONTEXT(find=…) finds them"] if left else []
    return "\n".join([text, *more, *reversed(kept)])


def marked(record: str) -> list[str]:
    """Return the marked lines of a record, oldest first, each once; what was closed later is left out."""
    found: dict[str, str] = {}
    for match in _MARKED.finditer(record):
        word, box, text = (match["word"] or "").lower(), match["box"], match["text"].strip()
        key = _bare(text)
        if word == "done" or (box is not None and box != "[ ]"):
            found.pop(f"open {key}", None)
            continue
        kind = "open" if word in _OPEN or box is not None else word.replace("decided", "decision")
        line = f"{'TODO' if kind == 'open' else kind.upper()}: {text}"
        found.setdefault(f"{kind} {key}", line)
    return list(found.values())


def _bare(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def _repeats(text: str) -> bool:
    lines: Sequence[str] = [line.strip() for line in text.splitlines() if line.strip()]
    return len(lines) >= 4 and len(set(lines)) <= len(lines) // 3
