"""How a run folds, in numbers: its prompt over the steps, what share is folded, what folding took, and three penalties.

The penalties are those by which Context-Folding (arXiv 2510.11967) trains a model to fold: here they tell a person where a
prompt, a bound or a model could be better. All are sums over the journal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from state import branches, figures
from state.records import BranchRecord

if TYPE_CHECKING:
    from sqlalchemy import Connection

_POINTS = 40
_WORD = re.compile(r"[^\W\d_]{4,}")


def telemetry(connection: Connection, rollout: str, bound: int) -> dict[str, Any]:
    """Return the figures of one rollout for `status --json`; `bound` is limits.prompt_tokens."""
    folds = figures.folded(connection, rollout)
    shown_from, all_of = figures.characters(connection, rollout, folds["steps"])
    steps, tokens = figures.past_half(connection, rollout, bound // 2)
    failed, done = figures.failed_steps(connection, rollout)
    strayed = out_of_scope(connection)
    return {
        "prompt_tokens": figures.prompt_sizes_over(connection, rollout, _POINTS),
        "live_folds": folds["live"],
        "folds_made": folds["made"],
        "folded_steps": folds["steps"],
        "folded_share": round(shown_from / all_of, 4) if all_of else 0.0,
        "shown_for_folded": folds["tokens"],
        "cost": figures.cost_of(connection, rollout, ("fold", "progress")),
        "penalties": {
            # Tokens that a root prompt had beyond half of its bound, unfolded: summed up, and in how many steps.
            "unfolded_tokens": tokens,
            "unfolded_steps": steps,
            # Branches whose commits and end share no word with their purpose: a lexical stand-in for the paper's judge.
            "out_of_scope_branches": len(strayed),
            "out_of_scope": strayed[:20],
            # Steps whose cell raised, or that had none.
            "failed_steps": failed,
            "failed_share": round(failed / done, 4) if done else 0.0,
        },
    }


def out_of_scope(connection: Connection) -> list[str]:
    """Return the names of the branches that ended, and whose work has no word in common with what they were made for."""
    found = []
    for branch in branches.all_branches(connection):
        made = branches.commits_after(connection, branch.name, 0)
        told = [text for commit in made for text in (commit.summary, commit.contribution)]
        if branch.state != "open" and strays(branch, told):
            found.append(branch.name)
    return found


def strays(branch: BranchRecord, told: Sequence[str]) -> bool:
    """Say whether what a branch did shares no content word with its purpose; words count by their first five letters."""
    purpose = _words(branch.purpose)
    return bool(purpose) and not purpose & _words(" ".join([*told, branch.summary or ""]))


def _words(text: str) -> set[str]:
    return {word.lower()[:5] for word in _WORD.findall(text)}
