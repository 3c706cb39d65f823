"""Assemble what a model is shown, under a hard bound.

Order, most stable first: system rules, task, roadmap, folded history, environment, then the latest steps in full, and the
state last. Everything is counted, the reserve for the reply included; whatever happens in a run, `assemble` returns no more
than `bound` tokens: by an estimate from above, and where the model's own tokenizer can be had, by that.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence

import msgspec

from agent.models.base import Message
from agent.tokens import count_tokens, cut
from state.records import FoldRecord, StepRecord

_SPARE = 7  # a seventh of the bound is left free where the newest observation does not need it
_PER_MESSAGE = 8  # tokens that a chat template adds around a message
_ALL = "That is all of `context`: if it holds the answer, answer at once."
_FRAMES = 180  # the tags around the parts of a prompt
_TRIES = 12  # times that a prompt is made smaller until the model's own tokenizer agrees
_CLOSER = 0.97
_FADE = 0.85  # a block of history gets this much of the room of the one after it
_LEAST = 20  # tokens that the oldest block keeps
_SECTION = re.compile(r"^(?=# )", re.MULTILINE)

#: Counts a text in the model's own tokens; None where that cannot be done now.
Counter = Callable[[str], int | None]


class Material(msgspec.Struct, frozen=True):
    """What a prompt is made of: the rules (`system`), the task and the rest; `tools`, `environment` and `events` are ready lines.

    `material` is the whole context where that is short, and empty otherwise; `said` is what the user said since the last step,
    `nudge` a line for one that goes round in circles.
    """

    system: str
    goal: str
    step: int
    steps: Sequence[StepRecord]
    folds: Sequence[FoldRecord] = ()
    roadmap: str = ""
    material: str = ""
    tools: Sequence[str] = ()
    environment: str = ""
    events: Sequence[str] = ()
    said: Sequence[str] = ()
    nudge: str = ""


class Prompt(msgspec.Struct, frozen=True):
    """The messages, their size in tokens (the reply's reserve included), a hash, and the reply's reserve."""

    messages: tuple[Message, ...]
    tokens: int
    hash: str
    reserve: int


def assemble(material: Material, bound: int, count: Counter | None = None) -> Prompt:
    """Return the prompt for a step in at most `bound` tokens, as estimated and, where it is given, as `count` counts them.

    The rules get at most a third. Of what they and the reserve leave, the task gets at most 35 %, roadmap and environment 10 %
    each, tools 8 %, a short context or the history 25 %; the latest observation may take half of the rest, older steps share
    what remains and shrink first.
    """
    within = bound
    for _ in range(_TRIES):
        made = _estimated(material, within)
        exact = _exact(made, count)
        if exact is None or exact <= bound:
            return made if exact is None else msgspec.structs.replace(made, tokens=exact)
        # Text that the estimate takes for words and a tokenizer does not, such as random letters: the room shrinks likewise.
        within = min(within - 1, int(within * bound / exact * _CLOSER))
    raise ValueError(f"limits.prompt_tokens: {bound} tokens do not hold the rules and the task in this model's tokens")


def _exact(made: Prompt, count: Counter | None) -> int | None:
    """Count a prompt with the model's tokenizer; None where it is not to be had."""
    sizes = [count(message.content) if count is not None else None for message in made.messages]
    known = [size for size in sizes if size is not None]
    return made.reserve + sum(size + _PER_MESSAGE for size in known) if len(known) == len(sizes) else None


def _estimated(material: Material, bound: int) -> Prompt:
    """Assemble by the estimate alone."""
    system = cut(material.system, bound // 3, "cut")
    reserve = min(1024, bound // 6)
    room = bound - reserve - count_tokens(system) - 4 * _PER_MESSAGE
    if room < 300:
        system = cut(system, max(50, bound // 4))
        room = max(100, bound - reserve - count_tokens(system) - 4 * _PER_MESSAGE)
    shares = max(40, room - _FRAMES)
    first, state = _first_message(material, shares), _state(material, shares)
    # Part by part: most of them are the same in each prompt, and counted already.
    sizes = [count_tokens(system), sum(count_tokens(part) + 1 for part in first)]
    left = room - sizes[1] - count_tokens(state) - 1
    messages = [Message("system", system), Message("user", "\n\n".join(first))]
    for reply, observation in _show_steps(material.steps, left, left - bound // _SPARE):
        messages += [Message("assistant", reply), Message("user", observation)]
        sizes += [count_tokens(reply), count_tokens(observation)]
    messages[-1] = Message("user", f"{messages[-1].content}\n\n{state}")
    sizes[-1] += count_tokens(state) + 1
    tokens = reserve + sum(size + _PER_MESSAGE for size in sizes)
    digest = hashlib.sha256("\0".join(f"{m.role}\0{m.content}" for m in messages).encode()).hexdigest()
    return Prompt(tuple(messages), tokens, digest, reserve)


def render_step(step: StepRecord) -> str:
    """Return a step as plain text: reply and observation, as folds and `show` read it."""
    return f"step {step.seq}:\n{step.reply or ''}\nobservation:\n{step.observation or ''}"


def _first_message(material: Material, room: int) -> list[str]:
    """Return the parts of the first message, the most stable first."""
    parts = [f"<task>\n{cut(material.goal.strip(), int(room * 0.35), 'cut, see the task file')}\n</task>"]
    if material.roadmap.strip():
        parts.append(f"<roadmap>\n{_roadmap(material, room // 10)}\n</roadmap>")
    if material.tools:
        listed = "\n".join(f"- {line}" for line in material.tools)
        parts.append(f"<tools>\n{cut(listed, room // 12)}\n</tools>")
    if material.material and not material.folds:  # by then it was seen
        parts.append(f"<context>\n{cut(material.material, room // 4)}\n</context>\n{_ALL}")
    if material.folds:
        parts.append(f"<history>\n{_history(material.folds, room // 4)}\n</history>")
    if material.environment:
        parts.append(f"<environment>\n{cut(material.environment, room // 10)}\n</environment>")
    return parts


def _roadmap(material: Material, room: int) -> str:
    """Return the roadmap without what the task says; where it has to be cut, what is open comes first and what is done goes."""
    sections = _SECTION.split(material.roadmap.strip())
    text = "\n".join(part.strip() for part in sections if part.partition("\n")[2].strip() != material.goal.strip())
    if count_tokens(text) <= room:
        return text
    lines = text.splitlines()
    todo = [line for line in lines if line.lstrip().startswith("- [ ]")]
    rest = [line for line in lines if line not in todo and not line.lstrip().lower().startswith("- [x]")]
    note = "cut, read .GCC/main.md"
    return cut("\n".join(["# To do", *todo, *rest]) if todo else "\n".join(rest), room, note)


def _history(folds: Sequence[FoldRecord], room: int) -> str:
    """Return the folded history: the newest blocks get the most room, the oldest at least a line."""
    shares: list[str] = []
    left, weights = room, [_FADE**age for age in range(len(folds))]
    for age, fold in enumerate(reversed(folds)):
        head = f"[steps {fold.first}-{fold.last}, CONTEXT(step=n) shows each]\n"
        share = int(left * weights[age] / sum(weights[age:])) - count_tokens(head)
        block = head + cut(fold.summary, max(_LEAST, share), "cut")
        left = max(0, left - count_tokens(block))
        shares.append(block)
    return cut("\n".join(reversed(shares)), room, "of history cut")


def _state(material: Material, room: int) -> str:
    events = cut("\n".join(material.events), room // 10, "cut")
    said = cut("\n".join(material.said), room // 5, "cut, CONTEXT(find=…) shows all")
    lines = [f"step: {material.step}"]
    if material.said:
        lines.append(f"The user says, and it comes before all else:\n{said}")
    lines += [text for text in (cut(material.nudge, room // 20), events) if text]
    return "<state>\n" + "\n".join(lines) + "\n</state>"


def _show_steps(steps: Sequence[StepRecord], left: int, usual: int) -> list[tuple[str, str]]:
    """Return (reply, observation) of the latest steps in at most `left` tokens; the oldest shrink and go first.

    Older steps are shown as far as all stays within `usual`: what is above that is for a large newest observation alone.
    """
    for older in (1 << 20, 1200, 600, 300, 150, 60, 0):
        newest = max(left // 2, left - (len(steps) - 1) * 2 * older) if older else left * 2 // 3
        shown = []
        for number, step in enumerate(steps):
            last = number == len(steps) - 1
            if not last and older == 0:
                continue
            cap = min(newest, left // 2) if last else older
            note = f"cut, CONTEXT(step={step.seq}) shows all"
            reply = cut(step.reply or "(no text)", max(8, cap * 2 // 3 if last else cap), note)
            observation = cut(step.observation or "", max(8, cap), note)
            shown.append((reply, f'<observation step="{step.seq}">\n{observation}\n</observation>'))
        size = sum(count_tokens(r) + count_tokens(o) + 2 * _PER_MESSAGE for r, o in shown)
        if size <= (usual if older else left):
            return shown
    return []
