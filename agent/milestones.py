"""COMMIT: one durable git commit of the work and of what is known about it, settled once (`landing.py` says how).

While a merge waits for its conflicts to be resolved, the next COMMIT without any conflict marker left concludes it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from agent.asked import Asked
from agent.branchfiles import BranchFiles
from agent.landing import Effect, Landing
from agent.models.base import Message, ModelRequest
from agent.outcome import Outcome
from agent.prompts import prompt
from agent.scope import Scope
from agent.tokens import count_tokens, cut
from state import branches, steps
from state.records import BranchRecord, CallKey, CallRecord, FoldRecord, MilestoneRecord
from workspaces import merging

PROGRESS_TOKENS = 250
_PROGRESS_INPUT = 2400  # tokens of it that the model is shown
_NOTHING = "Nothing yet."
_HEADLINE = 60  # characters
_FRAME = re.compile(r"\[?steps? \d+|observation:|```|go on\.?$", re.IGNORECASE)  # lines of a digest that tell nothing


class Milestones:
    """The commits that a rollout makes."""

    def __init__(self, scope: Scope) -> None:
        self._scope, self._rt, self._rollout = scope, scope.runtime, scope.rollout.id
        self.landing, self.files = Landing(scope), BranchFiles(scope)

    def commit(self, key: CallKey, summary: str, contribution: str, own: bool = True, tells: bool = False) -> Effect:
        """Settle a COMMIT and return what the model is told.

        `own` is whether the model asked for it: the loop's commits never conclude a merge. One that `tells` says all the same
        what the branch has reached.
        """
        record = self.landing.begin(key)
        if record.settled:
            self.files.write()
            return self.landing.again(record)
        workspace = self._scope.workspace
        head = workspace.head()
        merge = self._rt.journal.read(lambda c: branches.pending_merge(c, head.branch))
        if merge is not None and own:
            left = merging.unresolved(workspace, self.conflicts(merge))
            if left:
                return self.landing.settle(record, Effect(False, unresolved(merge.name, left)))
        concluded = merge if own else None
        made = self.record(record, head.branch, summary, contribution, concluded, own or tells)
        parents = [p for p in (head.sha, concluded.theirs if concluded else None) if p]
        tree = self.full_tree(head.branch, parents, concluded.name if concluded else "")
        return self.landing.land(
            record,
            f"refs/heads/{head.branch}",
            tree,
            parents,
            f"{made.summary}\n\n{made.contribution}\n\n{self.landing.trailers(made.step, record.id)}",
            Effect(True, shown(made), branch=head.branch if concluded else None),
            lambda c: branches.end_merge(c, concluded.name, made.contribution, made.step) if concluded else None,
            head.sha,
        )

    def record(
        self,
        record: CallRecord,
        branch: str,
        summary: str,
        contribution: str,
        merged: BranchRecord | None = None,
        own: bool = True,
    ) -> MilestoneRecord:
        """Return what a call records as a commit of `branch`, written once before anything of it is in git."""
        found = self._rt.journal.read(lambda c: branches.read_commit(c, record.id))
        if found is not None:
            return found
        summary = " ".join(summary.split())[:200] or "(no summary)"
        last = self._rt.journal.read(lambda c: branches.last_commit(c, branch))
        progress = self._progress(last, record) if last else _NOTHING
        made: list[MilestoneRecord] = []

        def write(connection: Any) -> None:
            if merged is not None:
                branches.unite_logs(connection, branch, merged.name, self._rollout, record.step)
            made.append(
                MilestoneRecord(
                    id=record.id,
                    branch=branch,
                    number=branches.next_commit(connection, branch),
                    rollout=self._rollout,
                    step=record.step,
                    summary=summary,
                    contribution=contribution.strip() or summary,
                    progress=progress,
                    log_first=(last.log_last if last else 0) + 1,
                    log_last=branches.next_entry(connection, branch) - 1,
                    origin=merged.name if merged is not None else "",
                    own=int(own),
                )
            )
            branches.add_commit(connection, made[0])

        self.landing.returned(record, write)
        return made[0]

    def full_tree(self, branch: str, parents: Sequence[str], merged: str = "") -> str:
        """Return the tree of the working files and of all that is known about them, `.GCC` brought up to date first."""
        workspace = self._scope.workspace
        work = workspace.snapshot(durable=False)
        self.files.write(branch, work)
        return workspace.full_tree(work, branch, parents, merged)

    def commit_work(self, key: CallKey, summary: str, contribution: str) -> None:
        """Commit what the working files have and the branch lacks, if there is anything, before the branch is left."""
        head = self._scope.workspace.head()
        if self.changed(head.sha):
            self.commit(key, summary, contribution, own=False)

    def changed(self, commit: str | None) -> bool:
        """Say whether the working files differ from a commit's, what is derived from the journal aside."""
        workspace = self._scope.workspace
        now = workspace.snapshot(durable=False)
        if commit is None:
            return True
        return any(not c.path.startswith(".GCC/branches/") for c in workspace.changes(commit, now))

    def commit_folds(self, seq: int, folds: list[FoldRecord]) -> None:
        """Commit where the branch stands for each block folded at step `seq`; a repeat finds it settled.

        What the run commits by itself or by the model's wish is story enough: a fold adds to it only where it stands still.
        """
        head = self._scope.workspace.head()
        if not folds or self._rt.journal.read(lambda c: branches.pending_merge(c, head.branch)) is not None:
            return
        for fold in folds:
            last = self._rt.journal.read(lambda c: branches.last_commit(c, head.branch))
            quiet = seq - (last.step if last and last.rollout == self._rollout else 0)
            often = self._rt.task.fold.commit_steps
            if quiet < often or (quiet < 3 * often and not self.changed(head.sha)):
                continue
            key = CallKey(self._rollout, seq, "commit", f"fold {fold.first}-{fold.last}", 0)
            self.commit(key, f"Steps {fold.first}-{fold.last}: {headline(fold.summary)}", fold.summary, own=False)

    def commit_end(self, outcome: Outcome) -> None:
        """Commit how the rollout ended, or where it waits, so that the branch's story ends with it."""
        last = self._rt.journal.read(lambda c: steps.last_step(c, self._rollout))
        seq = last.seq + (last.state == "done") if last is not None else 1
        title = {"done": "Done", "stopped": "Stopped"}.get(outcome.kind, f"Ended: {outcome.kind}")
        line = (outcome.answer.strip().split("\n")[0] if outcome.kind == "done" else outcome.reason)[:120]
        key = CallKey(self._rollout, seq, "commit", f"end {outcome.kind}", 0)
        self.commit(key, f"{title}: {line}", outcome.answer or outcome.reason, own=False, tells=outcome.kind == "done")

    def folds_at(self, seq: int) -> list[FoldRecord]:
        """Return the finest folds made at step `seq`."""
        made = self._rt.journal.read(lambda c: steps.folds_made_at(c, self._rollout, seq))
        return [fold for fold in made if fold.level == 0]

    def conflicts(self, merge: BranchRecord) -> tuple[str, ...]:
        """Return the paths in which a pending merge met conflicts."""
        workspace = self._scope.workspace
        return merging.merge_trees(workspace, workspace.head().sha or "", merge.theirs or "").conflicts

    def _progress(self, last: MilestoneRecord, key: CallRecord) -> str:
        """Return the progress so far: the last one plus the last contribution, summed up once it grows too long."""
        old = "" if last.progress == _NOTHING else last.progress + "\n"
        text = f"{old}{last.contribution}"
        if count_tokens(text) <= PROGRESS_TOKENS:
            return text
        text = cut(text, _PROGRESS_INPUT)
        request = ModelRequest(
            (Message("system", prompt("progress").format(tokens=PROGRESS_TOKENS)), Message("user", text)),
            max_tokens=PROGRESS_TOKENS * 2,
        )
        asked = Asked(
            CallKey(key.rollout, key.step, "progress", f"{key.kind}:{key.args_hash}", key.n),
            self._rt.task.models.fold,
            request,
        )
        settled = self._scope.broker.ask([asked])[0]
        new = settled.text.strip()
        if not settled.ok or not new or count_tokens(new) >= count_tokens(text) or new.lower().startswith("error"):
            return cut(last.progress, PROGRESS_TOKENS)
        return cut(new, PROGRESS_TOKENS)


def shown(made: MilestoneRecord) -> str:
    """Return the line about a commit that the model sees."""
    return f"committed C{made.number}: {made.summary}"


def headline(summary: str) -> str:
    """Return the beginning of a fold's summary as a subject for `git log`."""
    lines = [line.strip(" \t-*#>") for line in summary.splitlines()]
    telling = (line for line in lines if line and not _FRAME.match(line))
    first = " ".join(next(telling, "(nothing to tell)").split())
    return first if len(first) <= _HEADLINE else first[: _HEADLINE - 1].rstrip() + "…"


def unresolved(branch: str, left: list[str]) -> str:
    """Say what keeps a merge from being concluded."""
    return (
        f"the merge of {branch} is not finished: conflict markers are left in {', '.join(left[:20])}. Resolve them, then "
        f"COMMIT; or MERGE({branch!r}, abandon=True) puts the files back"
    )
