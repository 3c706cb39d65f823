"""How a call that changes git is settled: once, through the journal, and put in place again when its cell runs again.

Order: intent → what it records, `returned` → .GCC files → git objects on disk, nothing pointing at them → `done` with
`git_after` → the ref moves by compare-and-swap → HEAD and working files. A crash before `done` makes it again; after it,
recovery moves the ref, and the cell that runs again finds the outcome and puts its effect on the tree back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from ulid import ULID

from agent.scope import Scope
from agent.testing import crash_point
from state import calls as journal_calls
from state import runs
from state.records import CallKey, CallRecord

Also = Callable[[Any], None]


class Effect(msgspec.Struct, frozen=True):
    """What a call told its cell, and its effect: the branch that is checked out, and the working files as a `tree`.

    `commit` is the one whose files in `.GCC/branches` belong to that; `merges` the commit that a half-done merge brings in.
    """

    ok: bool
    text: str
    branch: str | None = None
    tree: str | None = None
    commit: str | None = None
    merges: str | None = None


class Landing:
    """Settles the git calls of one rollout."""

    def __init__(self, scope: Scope) -> None:
        self._scope, self._rt = scope, scope.runtime

    def begin(self, key: CallKey) -> CallRecord:
        """Write the call's intent, or find the call."""
        epoch, now = self._rt.journal.epoch or 0, self._rt.clock()
        record = self._rt.journal.write(lambda c: journal_calls.find_or_start(c, key, str(ULID()), epoch, now))
        crash_point("commit.started")
        return record

    def again(self, record: CallRecord) -> Effect:
        """Put the effect of a settled call in place once more."""
        effect = msgspec.msgpack.decode(record.outcome or b"", type=Effect)
        self.apply(effect)
        if effect.branch is None and record.git_after is not None:
            self._scope.workspace.sync_index()  # the crash may have come between ref and index
        return effect

    def returned(self, record: CallRecord, also: Also) -> None:
        """Write what the call records, before anything of it is in git."""

        def write(connection: Any) -> None:
            journal_calls.set_call(connection, record.id, state="returned")
            also(connection)

        self._rt.journal.write(write)
        crash_point("commit.returned")

    def settle(self, record: CallRecord, effect: Effect, also: Also | None = None) -> Effect:
        """Write the outcome of a call that makes no commit, then put its effect in place."""

        def write(connection: Any) -> None:
            self._done(connection, record, effect)
            if also is not None:
                also(connection)

        self._rt.journal.write(write)
        crash_point("commit.settled")
        self.apply(effect)
        return effect

    def land(
        self,
        record: CallRecord,
        ref: str,
        tree: str,
        parents: Sequence[str],
        message: str,
        effect: Effect,
        also: Also | None = None,
        old: str | None = None,
    ) -> Effect:
        """Commit `tree` and let `ref` move from `old` to it, then put the effect in place, the commit its own."""
        workspace = self._scope.workspace
        commit = workspace.write_commit(tree, parents, message, int(self._rt.clock()))
        crash_point("commit.objects")
        effect = msgspec.structs.replace(effect, commit=commit) if effect.branch is not None else effect
        moved = {"git_before": old, "git_after": commit, "ref": ref, "ref_pending": 1}

        def write(connection: Any) -> None:
            self._done(connection, record, effect, **moved)
            if also is not None:
                also(connection)

        self._rt.journal.write(write)
        crash_point("commit.done")
        workspace.move_ref(ref, commit, old)
        self._rt.heads[ref.removeprefix("refs/heads/")] = commit
        crash_point("commit.ref_moved")
        self._rt.journal.write(lambda c: journal_calls.set_call(c, record.id, ref_pending=0))
        self.apply(effect)
        if effect.branch is None:
            workspace.sync_index()
        self._rt.tell("commit", summary=message.partition("\n")[0], sha=commit)
        return effect

    def apply(self, effect: Effect) -> None:
        """Check out the branch and put the files in place that a call left, saving first what is there and differs."""
        workspace = self._scope.workspace
        if effect.tree is not None:
            at = workspace.read_ref("HEAD")
            restored = workspace.restore(effect.tree, str(ULID()), {workspace.work_tree(at)} if at else ())
            if restored.rescue is not None:
                self._rescued(restored.rescue)
        if effect.branch is not None and workspace.head().branch != effect.branch:
            workspace.switch_head(effect.branch)
        if effect.commit is not None:
            workspace.place_branch_files(effect.commit)
        if effect.branch is not None or effect.tree is not None:
            workspace.note_merge(effect.merges)
            workspace.sync_index()
        crash_point("commit.applied")

    def trailers(self, step: int, txn: str) -> str:
        """Return the lines that tie a commit to the journal."""
        spent = self._rt.budget.used()
        return (
            f"Rlm-Run: {self._rt.run}\nRlm-Step: {step}\nRlm-Txn: {txn}\n"
            f"Rlm-Spend: {spent.calls} calls, {spent.tokens_in} tokens, {spent.usd:.4f} USD\n"
        )

    def _done(self, connection: Any, record: CallRecord, effect: Effect, **moved: Any) -> None:
        packed, now = msgspec.msgpack.encode(effect), self._rt.clock()
        fields = {"state": "done", "ok": int(effect.ok), "outcome": packed, "ended_at": now, **moved}
        journal_calls.set_call(connection, record.id, **fields)

    def _rescued(self, ref: str) -> None:
        rollout = self._scope.rollout.id
        self._rt.journal.write(lambda c: runs.add_event(c, self._rt.clock(), "rescued", rollout, None, ref=ref))
