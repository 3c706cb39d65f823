"""How `.GCC` reads: the records of commits and steps as Markdown. Pure, and the same bytes for the same
records, so that a killed and resumed run has the same trees.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

PART_CHARS = 4000


class CommitRecord(msgspec.Struct, frozen=True):
    """One COMMIT as `commit.md` tells it; `log_first` to `log_last` are the steps of log.md that it covers."""

    seq: int
    id: str
    summary: str
    purpose: str
    previous_progress: str
    contribution: str
    step: int
    log_first: int
    log_last: int
    #: the branch it came from, when a merge brought it
    origin: str = ""


class LogRecord(msgspec.Struct, frozen=True):
    """One step as `log.md` tells it."""

    step: int
    observation: str
    thought: str
    action: str
    #: its place in the branch's log, from 1; 0 where that is the step's own number
    number: int = 0
    #: the branch it came from, when a merge brought it
    origin: str = ""


def render_main(goal: str, milestones: Sequence[str], todo: Sequence[str]) -> str:
    """Return `main.md`, the roadmap: goal, milestones reached, things to do."""
    reached = [f"- {line}" for line in milestones] or ["(none yet)"]
    open_ends = [f"- [ ] {line}" for line in todo] or ["(nothing noted yet)"]
    parts = ["# Goal", "", goal.strip(), "", "# Milestones", "", *reached, "", "# To do", "", *open_ends, ""]
    return "\n".join(parts)


def render_commit_entry(record: CommitRecord) -> str:
    """Return one commit's entry for `commit.md`."""
    origin = f" (from branch {record.origin})" if record.origin else ""
    covers = (
        f"log steps {record.log_first}–{record.log_last}" if record.log_first <= record.log_last else "no log steps"
    )
    return "\n".join(
        [
            f"## {record.id} · {' '.join(record.summary.split())}{origin}",
            "",
            f"Made at step {record.step}; covers {covers}.",
            "",
            "### Branch Purpose",
            "",
            _plain(record.purpose),
            "",
            "### Previous Progress Summary",
            "",
            _plain(record.previous_progress),
            "",
            "### This Commit's Contribution",
            "",
            _plain(record.contribution),
            "",
        ]
    )


def render_log_entry(record: LogRecord) -> str:
    """Return one step's entry for `log.md`; a long part keeps head and tail and says where the rest is."""
    origin = f" (from branch {record.origin})" if record.origin else ""
    return "\n".join(
        [
            f"## Step {record.step}{origin}",
            "",
            "**Observation**",
            "",
            _fenced(_cut(record.observation, record.step), "text"),
            "",
            "**Thought**",
            "",
            _plain(_cut(record.thought, record.step)),
            "",
            "**Action**",
            "",
            _fenced(_cut(record.action, record.step), "python"),
            "",
        ]
    )


def _cut(text: str, step: int) -> str:
    if len(text) <= PART_CHARS:
        return text
    head, tail = PART_CHARS * 3 // 4, PART_CHARS // 4
    note = f"\n[… {len(text) - head - tail} characters cut; in full: `rlm-agent show {step}` …]\n"
    return text[:head] + note + text[-tail:]


def _plain(text: str) -> str:
    # What a ledger reads as the end of an entry must not come from inside one.
    return text.strip().replace("<!-- end ", "<!-- End ") or "(nothing)"


def _fenced(text: str, language: str) -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{_plain(text)}\n{fence}"
