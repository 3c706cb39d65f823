"""`offline/digest`: sums up a record of steps by its most telling lines, without a model.

It writes folds where the root is offline. Extractive and deterministic: every line of a digest stands in the record, in the
record's order, and a digest is always shorter than its record.
"""

from __future__ import annotations

import re

from agent.models.base import ModelReply, ModelRequest, ModelSpec
from agent.tokens import count_tokens, cut

_DEFAULT_TOKENS = 256
_LINE_TOKENS = 48
_ASKED = re.compile(r"[Aa]t most (\d+) tokens")
_HEADER = re.compile(r"^(\[steps? \d+|step \d+\b)", re.IGNORECASE)
_NOISE = re.compile(r"^(```.*|</?\w+[^>]*>|observation:|import \w+.*|from \w+ import .*|try:|else:|pass|[\W_]*)$")
#: What a line tells, the most telling first; a line counts by the first row that it matches.
_TELLING = (
    (
        9.0,
        re.compile(
            r"^\W*(todo|to-do|open|next|decision|decided|plan|blocked|warning|careful|never)\b\W", re.IGNORECASE
        ),
    ),
    (8.0, re.compile(r"\b(COMMIT|MERGE|BRANCH)\(|^\W*(committed|merged|commit [0-9a-f]{7,})", re.IGNORECASE)),
    (
        7.0,
        re.compile(
            r"^\w*(Error|Exception|Interrupt)\b|\b(failed|refused|does not work|timed out|not found|wrong)\b",
            re.IGNORECASE,
        ),
    ),
    (
        6.0,
        re.compile(r"\b(answer|result|found|conclusion|because|so that|therefore|fact|total|means)\b", re.IGNORECASE),
    ),
    (5.0, re.compile(r"\b[\w./-]+\.(py|md|txt|csv|json|ya?ml|toml|html|log|tex|pdf|sql|sh)\b")),
    (3.0, re.compile(r"[=:]\s*\S*\d|\d")),
    (2.0, re.compile(r"^[A-Z][^=(]{20,}[.:!]?$")),
)


class Digest:
    """A `Model` whose reply is the gist of its last message."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec

    def check(self) -> None:
        """Do nothing: it needs nothing."""

    def close(self) -> None:
        """Do nothing: it holds nothing."""

    def complete(self, request: ModelRequest) -> ModelReply:
        """Reply with a digest within `max_tokens`, and within what the messages ask for ("at most 160 tokens")."""
        record = request.messages[-1].content if request.messages else ""
        limits = [int(n) for message in request.messages[:-1] for n in _ASKED.findall(message.content)]
        text = digest(record, min([request.max_tokens or _DEFAULT_TOKENS, *limits]))
        read = sum(count_tokens(m.content) for m in request.messages)
        return ModelReply(text, tokens_in=read, tokens_out=count_tokens(text), cost_usd=0.0, model=self.spec.model)


def digest(record: str, tokens: int) -> str:
    """Return the most telling lines of `record`, in order, in at most `tokens` and at most 2/3 of the record's own tokens."""
    room = min(tokens, count_tokens(record) * 2 // 3)
    lines = _candidates(record)
    chosen: set[int] = set()
    # What happened at each step before how: the headers and the first line of each step come with their best lines.
    for at, (_, line) in sorted(enumerate(lines), key=lambda item: (-item[1][0], item[0])):
        cost = count_tokens(line) + 1
        if cost <= room:
            chosen.add(at)
            room -= cost
    kept = [lines[at][1] for at in sorted(chosen)]
    kept = [
        line
        for at, line in enumerate(kept)
        if not (_HEADER.match(line) and at + 1 < len(kept) and _bare(line) and _HEADER.match(kept[at + 1]))
    ]
    return "\n".join(kept) or cut(" ".join(record.split()), max(1, min(tokens, count_tokens(record) * 2 // 3)))


def _candidates(record: str) -> list[tuple[float, str]]:
    """Return (weight, line) of the lines that may stand in a digest: whole thoughts, each once, long ones shortened."""
    found: list[tuple[float, str]] = []
    seen: set[str] = set()
    after_header = False
    for raw in record.splitlines():
        line = " ".join(raw.split())
        header = bool(_HEADER.match(line))
        if (_NOISE.match(line) and not header) or line in seen:
            continue
        seen.add(line)
        weight = 10.0 if header else next((w for w, pattern in _TELLING if pattern.search(line)), 1.0)
        if after_header:
            weight = max(weight, 6.5)  # a step's reply opens with its thought
        after_header = header
        found.append((weight, cut(line, _LINE_TOKENS).replace("\n", " ")))
    return found


def _bare(line: str) -> bool:
    return len(line) < 16
