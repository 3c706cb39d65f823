"""`offline/digest`: sums up a record of steps by its most telling lines, without a model.

It writes folds where the root is offline. Extractive and deterministic: every line of a digest stands in the record, in the
record's order, and a digest is always shorter than its record.
"""

from __future__ import annotations

import re

import msgspec

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


class _Line(msgspec.Struct, frozen=True):
    at: int
    text: str
    weight: float
    header: tuple[int, str] | None


class Digest:
    """A `Model` whose reply is the gist of its last message."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec

    def check(self) -> None:
        """Do nothing: it needs nothing."""

    def close(self) -> None:
        """Do nothing: it holds nothing."""

    async def acomplete(self, request: ModelRequest) -> ModelReply:
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
    chosen: dict[int, str] = {}
    for line in sorted(lines, key=lambda line: (-line.weight, line.at)):
        wanted = {line.at: line.text}
        if line.header is not None and line.header[0] not in chosen:  # a line comes with the step that it stands in
            wanted[line.header[0]] = line.header[1]
        cost = sum(count_tokens(text) + 1 for text in wanted.values())
        if cost <= room:
            chosen.update(wanted)
            room -= cost
    return "\n".join(chosen[at] for at in sorted(chosen)) or " ".join(record.split())[: max(1, room * 2 // 3)]


def _candidates(record: str) -> list[_Line]:
    """Return the lines that may stand in a digest: whole thoughts, each once, long ones shortened."""
    found: list[_Line] = []
    seen: set[str] = set()
    header: tuple[int, str] | None = None
    opens = False
    for at, raw in enumerate(record.splitlines()):
        line = " ".join(raw.split())
        if _HEADER.match(line):
            header, opens = (at, cut(line, _LINE_TOKENS).replace("\n", " ")), True
            continue
        if _NOISE.match(line) or line in seen:
            continue
        seen.add(line)
        weight = next((w for w, pattern in _TELLING if pattern.search(line)), 1.0)
        if opens:
            weight = max(weight, 6.5)  # a step's reply opens with its thought
        opens = False
        found.append(_Line(at, cut(line, _LINE_TOKENS).replace("\n", " "), weight, header))
    return found
