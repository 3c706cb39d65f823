"""`offline/explorer`: a root model without a network, whose replies follow a fixed research policy.

It sees what any model sees, the messages, and answers with a thought and one cell; the same messages give the same
reply. A cell prints where to go on (`NEXT: settle 3`), and the reply to that is the cell of this name. All knowledge
is in the REPL and in the workspace, none in this object.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources

from agent.models.base import Message, ModelReply, ModelRequest, ModelSpec

THOUGHTS = {
    "survey": "I start by looking at what there is and by writing down the questions.",
    "words": "Words are compared by their stems, so that serviced and service meet.",
    "analyse": "Each question splits into identifiers, content words and the kind of answer it wants.",
    "intent": "A count, the place of a text, an occurrence, what a thing is for: each is looked up in a way of its own.",
    "paths": "A document's path says what module it is, and whether it is a test.",
    "windows": "Too much to read, so I search: rare words first, then where several of them meet.",
    "holding": "A dotted name says where to look first: its module, and the class it belongs to.",
    "narrow": "These searches leave a few documents and windows that are worth reading.",
    "tally": "Counts are made by search, to the last hit, in bounded memory.",
    "stated": "Headers, settings, tables and manuals state things in a line of their own.",
    "purpose": "What a thing is for stands in its docstring or in the NAME line of its manual page.",
    "conclude": "A second look at the lines to cite; then I answer with them, or say that it is not there.",
    "count": "One pass over all documents counts these words, so that I can rank documents per question.",
    "code": "Where a named thing is defined can be read from the code itself, with exact lines.",
    "signatures": "Default values and raised exceptions can be taken from the code word for word.",
    "extract": "So can constants, base classes and places; together they give the answers from code.",
    "sentences": "For everything else I read sentences, and keep the lines they stand on.",
    "prose": "I rank sentences by how much of the question stands in and around them.",
    "shapes": "A person, a date or a quantity has a shape that can be found.",
    "runs": "Fields of a table have a key, and what a sentence adds to its question is a candidate too.",
    "ask": "The sub-model reads the best passages and votes; only what stands in them counts.",
    "report": "The report is rendered from the findings each time; an answer has to stand in the lines it cites.",
    "decide": "Now the order of trust: code, then prose that the sub-model has read, then not found.",
    "look": "Question {n}: I look at what code and search find first.",
    "settle": "Question {n}: I decide, write it down and commit.",
    "finish": "All questions are settled. I check report.md itself against the documents before I answer.",
    "recover": "That did not go as planned. I look at what is there and go on from what is missing.",
    "give_up": "This keeps failing, so I stop and say so.",
}
CHILD = "You answer one question over the given `context`"  # how a child's rules begin
_GIVEN_UP = "no ready answer: the run ends as stuck"
_MARKER = re.compile(r"^NEXT: (\w+)(?: (\d+))?\s*$", re.MULTILINE)
_TROUBLE = re.compile(r"^Traceback \(most recent call last\)|^\w*(?:Error|Exception|Interrupt)\b.*", re.MULTILINE)


class Explorer:
    """A `Model` that explores, ranks, asks and writes by a fixed policy."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec

    def check(self) -> None:
        """Do nothing: it needs neither a key nor a network."""

    def close(self) -> None:
        """Do nothing: it holds nothing."""

    async def acomplete(self, request: ModelRequest) -> ModelReply:
        """Reply to the messages with a thought and the next cell."""
        name, number = next_cell(request.messages)
        code = cell(name)
        if number is not None:
            code = code.replace("NUMBER+1", str(number + 1)).replace("NUMBER", str(number))
        if name == "survey":
            single = lone_question(request.messages)
            listed = [single] if single else questions(goal(request.messages))
            asked = "".join(f"    {question!r},\n" for question in listed)
            code = code.replace("questions = []", f"questions = [\n{asked}]", 1)
            code = code.replace("asking = False", f"asking = {single is not None}", 1)
        text = f"{THOUGHTS[name].format(n=number)}\n\n```repl\n{code}```\n"
        read = sum(len(message.content) for message in request.messages) // 4
        return ModelReply(text, tokens_in=read, tokens_out=len(text) // 4, cost_usd=0.0, model=self.spec.model)


def goal(messages: Sequence[Message]) -> str:
    """Return the task's goal: what stands between `<task>` and `</task>`, else the first user message."""
    for message in messages:
        if message.role == "user":
            marked = re.search(r"<task>\n(.*?)\n?</task>", message.content, re.DOTALL)
            return marked[1] if marked else message.content
    return ""


def lone_question(messages: Sequence[Message]) -> str | None:
    """Return the one question of an `ask` (after `QUESTION:`) or of a child rollout (its prompt), else None."""
    text = goal(messages)
    marked = re.search(r"^QUESTION:\s*(.+)", text, re.MULTILINE | re.DOTALL)
    child = bool(messages) and messages[0].role == "system" and messages[0].content.startswith(CHILD)
    if not marked and not child:
        return None
    whole = re.sub(r"\s+", " ", marked[1] if marked else text).strip()
    return whole if len(whole) <= 300 else " ".join(questions(whole))[:600]


def questions(text: str) -> list[str]:
    """Read the questions of a goal: its numbered list, else bullets or sentences that ask, else the whole."""
    items = _items(text, r"\d+[.)]")
    if not items:
        items = [item for item in _items(text, r"[-*•]") if item.endswith("?")]
    if not items:
        items = re.findall(r"(?:(?<=[.!?:]\s)|^)[^.!?\n]*(?:\.\w[^.!?\n]*)*\?", text, re.MULTILINE)
    return [re.sub(r"\s+", " ", item).strip() for item in items if item.strip()] or [re.sub(r"\s+", " ", text).strip()]


def _items(text: str, mark: str) -> list[str]:
    pattern = rf"^[ \t]*{mark}[ \t]+(.+(?:\n(?![ \t]*(?:{mark}[ \t]|$))[ \t]+.+)*)"
    return [" ".join(item.split()) for item in re.findall(pattern, text, re.MULTILINE)]


def next_cell(messages: Sequence[Message]) -> tuple[str, int | None]:
    """Choose the next cell by the latest marker; failures lead to `recover`, many in a row to `give_up`."""
    replies = [at for at, message in enumerate(messages) if message.role == "assistant"]
    if not replies:  # at a late step the bound left no room for earlier ones: never start from nothing then
        step = re.findall(r"^step: (\d+)", messages[-1].content if messages else "", re.MULTILINE)
        return ("recover", None) if step and int(step[-1]) > 1 else ("survey", None)
    if _GIVEN_UP in messages[replies[-1]].content:  # it stays given up
        return "give_up", None
    ends = [*replies[1:], len(messages)]
    seen = [_observation(messages[at + 1 : end]) for at, end in zip(replies, ends, strict=True)]
    marker = _marker(seen[-1])
    if marker is not None:
        return marker
    failed = 0
    for observation in reversed(seen):
        if _marker(observation) is not None:
            break
        failed += 1
    return ("recover", None) if failed < 3 else ("give_up", None)


def _observation(messages: Sequence[Message]) -> str:
    return "\n".join(message.content for message in messages if message.role == "user")


def _marker(observation: str) -> tuple[str, int | None] | None:
    """Return the last marker that no traceback follows and that names a cell."""
    inside = re.search(r"<observation[^>]*>(.*)</observation>", observation, re.DOTALL)
    observation = inside[1] if inside else observation
    found = list(_MARKER.finditer(observation))
    if not found or _TROUBLE.search(observation, found[-1].end()) or found[-1][1] not in THOUGHTS:
        return None
    return found[-1][1], int(found[-1][2]) if found[-1][2] else None


@lru_cache(maxsize=32)
def cell(name: str) -> str:
    """Return the text of a cell; raise `FileNotFoundError` for a name that has none."""
    return resources.files("agent.explorer").joinpath("cells", f"{name}.py").read_text(encoding="utf-8")
