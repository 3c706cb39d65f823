"""COMMIT: one durable git commit of the work and of what is known about it, settled once through the journal.

Order: intent → .GCC files → git objects on disk, nothing pointing at them → journal `done` with `git_after` → the ref moves
by compare-and-swap. A crash before `done` makes it again; after it, recovery only moves the ref. When the cell of a
settled COMMIT runs again, the recorded outcome is returned and no second commit is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from ulid import ULID

from agent.asked import Asked
from agent.calls import CallBroker
from agent.models.base import Message, ModelRequest
from agent.prompts import prompt
from agent.repl.cells import parse_thought
from agent.runtime import Runtime
from agent.testing import crash_point
from agent.tokens import count_tokens, cut
from state import calls as journal_calls
from state import steps
from state.records import CallKey, CallRecord, StepRecord
from workspaces import gcc

if TYPE_CHECKING:
    from sqlalchemy import Connection

PROGRESS_TOKENS = 250
_PROGRESS_INPUT = 2400  # tokens of it that the model is shown


class Milestone(msgspec.Struct, frozen=True):
    """What a settled COMMIT recorded."""

    seq: int
    summary: str
    contribution: str
    progress: str
    step: int
    log_first: int
    log_last: int


class Milestones:
    """The commits of the root rollout's branch."""

    def __init__(self, runtime: Runtime, broker: CallBroker, rollout: str) -> None:
        self._rt, self._broker, self._rollout = runtime, broker, rollout

    def commit(self, key: CallKey, summary: str, contribution: str) -> str:
        """Settle a COMMIT and return the line that the model sees."""
        summary = " ".join(summary.split())[:200] or "(no summary)"
        record = self._rt.journal.write(lambda c: self._intent(c, key))
        crash_point("commit.started")
        if record.settled:
            self.write_files()
            made = msgspec.msgpack.decode(record.outcome or b"", type=Milestone)
            return _shown(made)
        earlier = self.recorded()
        made = self._next(earlier, key, summary, contribution)
        self.write_files([*earlier, made])
        workspace = self._rt.workspace
        head = workspace.head()
        tree = workspace.full_tree(workspace.snapshot(durable=False))
        message = self._message(made, record.id)
        commit = workspace.write_commit(tree, [head.sha] if head.sha else [], message, int(self._rt.clock()))
        crash_point("commit.objects")
        ref = f"refs/heads/{head.branch}"
        self._rt.journal.write(
            lambda c: journal_calls.set_call(
                c,
                record.id,
                state="done",
                ok=1,
                outcome=msgspec.msgpack.encode(made),
                git_before=head.sha,
                git_after=commit,
                ref=ref,
                ref_pending=1,
                ended_at=self._rt.clock(),
            )
        )
        crash_point("commit.done")
        workspace.move_ref(ref, commit, head.sha)
        crash_point("commit.ref_moved")
        self._rt.journal.write(lambda c: journal_calls.set_call(c, record.id, ref_pending=0))
        workspace.sync_index()
        self._rt.tell("commit", summary=summary, sha=commit)
        return _shown(made)

    def commit_folds(self, seq: int) -> None:
        """Commit where the branch stands for each block folded at step `seq`; a repeat finds them settled."""
        for fold in self._rt.journal.read(lambda c: steps.folds_made_at(c, self._rollout, seq)):
            if fold.level == 0:
                key = CallKey(self._rollout, seq, "commit", f"fold {fold.first}-{fold.last}", 0)
                self.commit(key, f"Steps {fold.first}-{fold.last}", fold.summary)

    def recorded(self) -> list[Milestone]:
        """Return all settled commits, oldest first."""
        rows = self._rt.journal.read(lambda c: journal_calls.calls_of_kind(c, "commit"))
        return [msgspec.msgpack.decode(r.outcome or b"", type=Milestone) for r in rows if r.settled]

    def write_files(self, made: list[Milestone] | None = None) -> None:
        """Bring `.GCC/branches/<b>` to what the journal says, appending where it only grew."""
        made = self.recorded() if made is None else made
        branch = self._rt.workspace.head().branch
        purpose = self._rt.task.goal.strip().split("\n")[0]
        gcc.write_branch_files(
            self._rt.workspace.path,
            branch,
            purpose,
            [
                gcc.CommitRecord(
                    seq=m.seq,
                    id=f"C{m.seq}",
                    summary=m.summary,
                    purpose=purpose,
                    previous_progress=m.progress,
                    contribution=m.contribution,
                    step=m.step,
                    log_first=m.log_first,
                    log_last=m.log_last,
                )
                for m in made
            ],
            self._log,
            {"branch": {"name": branch, "purpose": purpose, "commits": len(made)}},
        )

    def _log(self, after: int) -> list[gcc.LogRecord]:
        """Return the log records of the done steps behind step `after`."""
        rows = self._rt.journal.read(lambda c: steps.steps_between(c, self._rollout, after + 1, 1 << 60))
        return [_log_record(row) for row in rows if row.state == "done"]

    def _intent(self, connection: Connection, key: CallKey) -> CallRecord:
        epoch = self._rt.journal.epoch or 0
        return journal_calls.find_or_start(connection, key, str(ULID()), epoch, self._rt.clock())

    def _next(self, earlier: list[Milestone], key: CallKey, summary: str, contribution: str) -> Milestone:
        last = earlier[-1] if earlier else None
        first = last.log_last + 1 if last else 1
        return Milestone(
            seq=len(earlier) + 1,
            summary=summary,
            contribution=contribution.strip() or summary,
            progress=self._progress(last, key) if last else "Nothing yet.",
            step=key.step,
            log_first=min(first, max(1, key.step - 1)),
            log_last=key.step - 1,
        )

    def _progress(self, last: Milestone, key: CallKey) -> str:
        """Return the progress so far: the last one plus the last contribution, summed up once it grows too long."""
        old = "" if last.progress == "Nothing yet." else last.progress + "\n"
        text = f"{old}{last.contribution}"
        if count_tokens(text) <= PROGRESS_TOKENS:
            return text
        text = cut(text, _PROGRESS_INPUT)
        request = ModelRequest(
            (Message("system", prompt("progress").format(tokens=PROGRESS_TOKENS)), Message("user", text)),
            max_tokens=PROGRESS_TOKENS * 2,
        )
        asked = Asked(
            CallKey(key.rollout, key.step, "progress", key.args_hash, key.n),
            self._rt.task.models.fold,
            request,
        )
        settled = self._broker.ask([asked])[0]
        new = settled.text.strip()
        if not settled.ok or not new or count_tokens(new) >= count_tokens(text) or new.lower().startswith("error"):
            return cut(last.progress, PROGRESS_TOKENS)
        return cut(new, PROGRESS_TOKENS)

    def _message(self, made: Milestone, txn: str) -> str:
        spend = self._rt.journal.read(journal_calls.spend)
        trailers = (
            f"Rlm-Run: {self._rt.run}\nRlm-Step: {made.step}\nRlm-Txn: {txn}\n"
            f"Rlm-Spend: {spend.calls} calls, {spend.tokens_in + spend.tokens_out} tokens, {spend.usd:.4f} USD"
        )
        return f"{made.summary}\n\n{made.contribution}\n\n{trailers}\n"


def _shown(made: Milestone) -> str:
    return f"committed C{made.seq}: {made.summary}"


def _log_record(row: StepRecord) -> gcc.LogRecord:
    return gcc.LogRecord(
        step=row.seq,
        observation=row.observation or "",
        thought=parse_thought(row.reply or ""),
        action=row.cell or "",
    )
