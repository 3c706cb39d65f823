"""Whether a rollout goes round in circles, read from the journal's newest steps alone: no fold and no restart forgets it.

First a nudge in the prompt, then the proposal to go back to where there was progress, then the end of the rollout. A changed
file, a commit, another answer, a variable that came or grew, or an observation that was not seen before is progress.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec

from state.records import StepRecord

WINDOW = 40  # steps that are looked at
#: Of each sign: how often it has to be seen for a nudge, for a proposal to go back, and for the end.
_REPEATED = (3, 6, 10)  # the same cell with the same observation
_WAITING = (9, 18, 30)  # the same, where the cell waits for something
_CYCLES = (3, 5, 8)  # the same two or three steps in turn
_ERRORS = (3, 5, 8)  # the same error, no file changed meanwhile
_EDITED = (5, 8, WINDOW + 1)  # the same error although files changed: never the end by itself
_NOTHING = (12, 24, 36)  # steps without any progress
_WAITS = re.compile(r"\b(sleep|wait|poll|watch)\w*\s*\(|\bsleep \d", re.IGNORECASE)
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+|'/[^']*'|\"/[^\"]*\"")
_SHOWN = 100  # characters of a line that is named


class Signs(msgspec.Struct, frozen=True):
    """What was seen: `level` 0 nothing, 1 nudge, 2 propose to go back, 3 stuck; `count` times `what`, since step `since`.

    `back_to` is the last step before that which made progress, 0 where there is none.
    """

    level: int = 0
    what: str = ""
    since: int = 0
    count: int = 0
    back_to: int = 0


def signs_in(rows: Sequence[StepRecord], commits: Sequence[int] = ()) -> Signs:
    """Look at the newest steps of a rollout, oldest first; `commits` are the steps at which something was committed."""
    rows = [row for row in rows if row.state == "done"][-WINDOW:]
    if len(rows) < 3:
        return Signs()
    new = _progress(rows, commits)
    found = [_repeated(rows), *(_cycle(rows, period) for period in (2, 3)), _errors(rows), _nothing(rows, new)]
    strongest = max(found, key=lambda sign: sign.level)
    if strongest.level == 0:
        return Signs()
    return msgspec.structs.replace(strongest, back_to=_back_to(rows, new, strongest.since))


def told(signs: Signs) -> str:
    """Return what the model is told, empty where there is nothing to tell."""
    if signs.level == 0:
        return ""
    seen = f"You are going round in circles since step {signs.since}: {signs.what}."
    if signs.level == 1 or signs.back_to == 0:
        return f"{seen} Do something else: look at what you have not looked at, or try another way."
    return (
        f"{seen} Step {signs.back_to} was the last that brought anything: REWIND({signs.back_to}) puts files and variables back "
        "to there; then try another way, or give the best answer you have. If this goes on, the run ends as stuck."
    )


def _progress(rows: Sequence[StepRecord], commits: Sequence[int]) -> list[bool]:
    """Say of each step whether it brought anything; the first one counts as if it did."""
    committed, seen, result = set(commits), {_seen(rows[0])}, [True]
    for before, row in pairwise(rows):
        changed = (before.tree, before.variables, before.partial) != (row.tree, row.variables, row.partial)
        result.append(changed or row.seq in committed or _seen(row) not in seen)
        seen.add(_seen(row))
    return result


def _seen(row: StepRecord) -> str:
    return (row.observation or "").strip()


def _key(row: StepRecord) -> tuple[str | None, ...]:
    return (row.cell or row.reply or "").strip(), _seen(row), row.tree, row.variables, row.partial


def _repeated(rows: Sequence[StepRecord]) -> Signs:
    """The same cell showed the same, and no file changed."""
    count = _trailing(rows, lambda row: _key(row) == _key(rows[-1]))
    limits = _WAITING if _WAITS.search(rows[-1].cell or "") else _REPEATED
    return _sign(limits, count, rows, count, f"the same cell showed the same {count} times")


def _cycle(rows: Sequence[StepRecord], period: int) -> Signs:
    """A few steps come again in turn, and leave the files as they were."""
    keys = [_key(row) for row in rows]
    if len(set(keys[-period:])) < 2:
        return Signs()
    same = 0
    while same + period < len(keys) and keys[-1 - same] == keys[-1 - same - period]:
        same += 1
    count = (same + period) // period
    limits = _WAITING if any(_WAITS.search(row.cell or "") for row in rows[-period:]) else _CYCLES
    return _sign(limits, count, rows, same + period, f"the same {period} steps in turn, {count} times")


def _errors(rows: Sequence[StepRecord]) -> Signs:
    """The same error again and again, whatever the cells were."""
    error = _error_of(rows[-1])
    if not error:
        return Signs()
    alike = [row for row in rows if _error_of(row) == error]
    edited = len({row.tree for row in alike}) > 1
    span = rows[-1].seq - alike[0].seq + 1
    while len(alike) > 1 and span > 3 * len(alike):  # far apart: those are not one stretch
        alike = alike[1:]
        span = rows[-1].seq - alike[0].seq + 1
    line = error if len(error) <= _SHOWN else error[:_SHOWN] + "…"
    return _sign(_EDITED if edited else _ERRORS, len(alike), rows, span, f"the same error {len(alike)} times ({line})")


def _nothing(rows: Sequence[StepRecord], new: Sequence[bool]) -> Signs:
    """No new file, variable, answer, commit or observation."""
    count = 0
    while count < len(new) and not new[-1 - count]:
        count += 1
    return _sign(_NOTHING, count, rows, count, f"{count} steps brought no new file, variable, commit or observation")


def _sign(limits: tuple[int, int, int], count: int, rows: Sequence[StepRecord], length: int, what: str) -> Signs:
    level = sum(count >= limit for limit in limits)
    return Signs(level, what, rows[-min(length, len(rows))].seq, count) if level else Signs()


def _trailing(rows: Sequence[StepRecord], holds: Callable[[StepRecord], bool]) -> int:
    count = 0
    while count < len(rows) and holds(rows[-1 - count]):
        count += 1
    return count


def _error_of(row: StepRecord) -> str:
    """Return what a failed step failed with, numbers and paths taken out."""
    lines = [line.strip() for line in (row.observation or "").splitlines() if line.strip()]
    return _NUMBERS.sub("#", lines[-1]) if row.failed and lines else ""


def _back_to(rows: Sequence[StepRecord], new: Sequence[bool], since: int) -> int:
    good = [row.seq for row, fresh in zip(rows, new, strict=True) if row.seq < since and fresh and not row.failed]
    return good[-1] if good else max(0, since - 1)
