"""The functions with which a cell works on its branch and its own past: commits, branches, folds, and a question to the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agent.repl.answers import CallError, or_raise

Call = Callable[..., Any]


class Explored(str):
    """What came of a branch that a child worked on: its answer, and `branch`, `diffstat`, `trajectory`."""

    branch: str
    diffstat: str
    trajectory: str

    def __new__(cls, text: str, branch: str, diffstat: str, trajectory: str) -> Explored:
        made = super().__new__(cls, text)
        made.branch, made.diffstat, made.trajectory = branch, diffstat, trajectory
        return made

    def __reduce__(self) -> Any:
        return Explored, (str(self), self.branch, self.diffstat, self.trajectory)

    def __repr__(self) -> str:
        return f"<branch {self.branch}: {str(self)!r}; {self.diffstat}>"


def build(call: Call) -> dict[str, Any]:
    """Make the functions; `call(kind, **arguments)` asks the host."""

    def COMMIT(summary: str, contribution: str | None = None) -> str:
        """Record a milestone: one git commit of the work and of what is known."""
        more = None if contribution is None else str(contribution)
        return str(or_raise(call("commit", summary=str(summary), contribution=more)))

    def BRANCH(name: str, purpose: str) -> str:
        """Make a branch for an idea, from where the work stands, and go on there."""
        return str(or_raise(call("branch", name=str(name), purpose=str(purpose))))

    def SWITCH(name: str) -> str:
        """Commit what is here and go on in another branch, with its files."""
        return str(or_raise(call("switch", name=str(name))))

    def MERGE(name: str, abandon: bool = False) -> str:
        """Merge a branch into this one; conflicts stand in the files until a COMMIT without them, or `abandon=True` undoes it."""
        return str(or_raise(call("merge", name=str(name), abandon=bool(abandon))))

    def ABANDON(name: str, why: str) -> str:
        """Close a branch that led nowhere; its commits stay."""
        return str(or_raise(call("abandon", name=str(name), why=str(why))))

    def explore(ideas: Sequence[Sequence[str]], limits: dict[str, Any] | None = None) -> list[Any]:
        """Let children work at once, each on a branch of its own: ideas are (name, purpose, prompt).

        Returns what came of each, in order; MERGE or ABANDON each branch afterwards.
        """
        wanted = []
        for idea in ideas:
            if isinstance(idea, str) or len(idea) != 3:
                raise ValueError(f"explore takes (name, purpose, prompt), not {idea!r}")
            wanted.append([str(part) for part in idea])
        if not wanted:
            return []
        return [_explored(outcome) for outcome in or_raise(call("explore", ideas=wanted, limits=limits))]

    def REWIND(step: int) -> str:
        """Put files and variables back to the end of an earlier step, once this cell has ended; nothing is forgotten."""
        return str(or_raise(call("rewind", to=int(step))))

    def fold(range: Sequence[int] | int, summary: str) -> str:
        """Show the steps (first, last), or all since a step, as this summary from now on; CONTEXT(step=n) still shows each."""
        first, last = (range, None) if isinstance(range, int) else (int(range[0]), int(range[-1]))
        return str(or_raise(call("fold", first=first, last=last, summary=str(summary))))

    def ask_user(question: str) -> str:
        """Ask the person who gave the task; the run waits, without a process, until there is an answer."""
        return str(or_raise(call("ask", question=str(question))))

    return {f.__name__: f for f in (COMMIT, BRANCH, SWITCH, MERGE, ABANDON, explore, REWIND, fold, ask_user)}


def _explored(outcome: dict[str, Any]) -> Any:
    if not outcome["ok"]:
        return CallError(outcome["value"])
    return Explored(outcome["value"], outcome["branch"], outcome["diffstat"], outcome["trajectory"])
