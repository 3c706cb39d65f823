"""BRANCH, SWITCH, MERGE and ABANDON: each settled once, its effect on the tree put in place again when its cell runs again.

A branch is left with nothing uncommitted: what its files have and git lacks is committed first. A merge that meets conflicts
leaves them in the files and waits, over crashes too, until a COMMIT without conflict markers concludes it or it is abandoned.
"""

from __future__ import annotations

from typing import Any

from agent.folding import fold_branch
from agent.landing import Effect
from agent.milestones import Milestones, unresolved
from agent.scope import Scope
from state import branches, steps
from state.records import BranchRecord, CallKey, CallRecord
from workspaces import merging
from workspaces.errors import WorkspaceError

_SHOWN = 12  # files of a diffstat


class Branching:
    """The branch calls of one rollout."""

    def __init__(self, scope: Scope, milestones: Milestones) -> None:
        self._scope, self._rt, self._milestones = scope, scope.runtime, milestones
        self._landing = milestones.landing

    def branch(self, key: CallKey, name: str, purpose: str, enter: bool = True) -> Effect:
        """Make a branch that begins where the work stands now, its first commit stating its purpose, and `enter` it."""
        record = self._landing.begin(key)
        if record.settled:
            return self._landing.again(record)
        workspace, head = self._scope.workspace, self._scope.workspace.head()
        purpose = " ".join(purpose.split())
        problem = self._unfit(name, purpose) or self._waiting(head.branch)
        if problem:
            return self._landing.settle(record, Effect(False, problem))
        self._milestones.commit_work(self._inner(key, "before"), f"Before branch {name}", f"Where {name} begins.")
        head = workspace.head()
        assert head.sha is not None, "a workspace begins with a commit"
        made = BranchRecord(
            record.id, name, purpose, head.branch, head.sha, record.rollout, record.step, "open", self._rt.clock()
        )
        self._milestones.files.begin(name, purpose)
        tree = workspace.full_tree(workspace.snapshot(durable=False), name, [head.sha])
        message = f"Branch {name}: {purpose}\n\n{self._landing.trailers(record.step, record.id)}"
        effect = Effect(True, f"branch {name} is made from {head.branch}", branch=name if enter else None)
        ref = f"refs/heads/{name}"
        return self._landing.land(
            record, ref, tree, [head.sha], message, effect, lambda c: branches.add_branch(c, made)
        )

    def switch(self, key: CallKey, name: str) -> Effect:
        """Leave this branch, its work committed, for another, whose files take the place of these."""
        record = self._landing.begin(key)
        if record.settled:
            return self._landing.again(record)
        workspace, head = self._scope.workspace, self._scope.workspace.head()
        there = workspace.branches()
        problem = self._waiting(head.branch)
        if name not in there:
            problem = f"there is no branch {name!r}; there are {', '.join(sorted(there))}"
        elif name == head.branch:
            problem = f"this is branch {name} already"
        if problem:
            return self._landing.settle(record, Effect(False, problem))
        self._milestones.commit_work(self._inner(key, "leave"), f"Leaving for {name}", f"The work goes on in {name}.")
        at = workspace.branches()[name]
        last = self._rt.journal.read(lambda c: branches.last_commit(c, name))
        told = f"on branch {name}" + (f"; its last commit is C{last.number}: {last.summary}" if last else "")
        return self._landing.settle(record, Effect(True, told, name, workspace.work_tree(at), at))

    def merge(self, key: CallKey, name: str, abandon: bool = False) -> Effect:
        """Merge a branch into this one, go on with a merge that waits, or abandon that."""
        record = self._landing.begin(key)
        if record.settled:
            effect = self._landing.again(record)
        else:
            waits = self._rt.journal.read(lambda c: branches.pending_merge(c, self._scope.workspace.head().branch))
            if abandon:
                effect = self._give_up(record, name, waits)
            elif waits is not None and waits.name == name:
                effect = self._conclude(record, waits)
            else:
                effect = self._merge(record, key, name)
        self._fold(key, name, effect)
        return effect

    def abandon(self, key: CallKey, name: str, why: str) -> Effect:
        """Close a branch that led nowhere; its commits stay, and CONTEXT tells why it failed."""
        record = self._landing.begin(key)
        if record.settled:
            return self._landing.again(record)
        found = self._rt.journal.read(lambda c: branches.find_branch(c, name))
        if found is None:
            return self._landing.settle(record, Effect(False, f"no BRANCH made {name!r}; {self._open()}"))
        if name == self._scope.workspace.head().branch:
            return self._landing.settle(record, Effect(False, f"this is branch {name}; SWITCH to another one first"))
        why = " ".join(why.split()) or "no reason given"

        def close(connection: Any) -> None:
            fields = {"state": "abandoned", "summary": why, "ended_step": key.step}
            branches.set_branch(connection, name, **fields, merging=None, theirs=None)

        effect = self._landing.settle(record, Effect(True, f"branch {name} is abandoned: {why}"), close)
        self._fold(key, name, effect)
        return effect

    def _merge(self, record: CallRecord, key: CallKey, name: str) -> Effect:
        workspace, head = self._scope.workspace, self._scope.workspace.head()
        theirs = workspace.branches().get(name)
        problem = self._waiting(head.branch)
        if theirs is None:
            problem = f"there is no branch {name!r}; {self._open()}"
        elif name == head.branch:
            problem = f"{name} is the branch you are on; SWITCH to the one it goes into first"
        if problem or theirs is None:
            return self._landing.settle(record, Effect(False, problem))
        self._milestones.commit_work(self._inner(key, "into"), f"Before merging {name}", "Where the merge begins.")
        ours = workspace.head().sha or ""
        try:
            merged = merging.merge_trees(workspace, ours, theirs, head.branch, name)
        except WorkspaceError as error:
            return self._landing.settle(record, Effect(False, error.message))
        if merged.state == "already":
            return self._landing.settle(record, Effect(True, f"{name} is merged already; nothing new in it"))
        if merged.conflicts:
            text = f"MERGE({name!r}) met conflicts in {', '.join(merged.conflicts[:20])}. "
            text += "The files hold both sides between <<<<<<< and >>>>>>>: resolve them, then COMMIT. "
            text += f"Where a file has no such marks, `git show {name}:FILE` is the other side. "
            text += f"MERGE({name!r}, abandon=True) undoes it"
            effect = Effect(True, text, head.branch, merged.tree, ours, theirs)
            return self._landing.settle(record, effect, self._pend(name, head.branch, theirs))
        return self._land(record, name, head.branch, ours, theirs, merged.tree)

    def _land(self, record: CallRecord, name: str, into: str, ours: str, theirs: str, work: str) -> Effect:
        """Make the merge commit; `work` is the tree of the files, `.GCC/branches` left out."""
        workspace, files = self._scope.workspace, self._milestones.files
        found = self._rt.journal.read(lambda c: branches.find_branch(c, name))
        last = self._rt.journal.read(lambda c: branches.last_commit(c, name, own=True))
        reached = last.contribution if last is not None else "no commit of its own"
        told = f"{found.purpose if found else 'made outside'}\n\n{reached}"
        merged = found or self._outside(record, name, into)
        self._milestones.record(record, into, f"Merge {name}", told, merged)
        files.write(into, work)
        tree = workspace.full_tree(work, into, [ours, theirs], name)
        message = f"Merge branch '{name}' into {into}\n\n{told}\n\n{self._landing.trailers(record.step, record.id)}"
        text = f"merged {name} into {into}:\n{merging.diffstat(workspace, ours, work, _SHOWN)}"
        return self._landing.land(
            record,
            f"refs/heads/{into}",
            tree,
            [ours, theirs],
            message,
            Effect(True, text, into, work),
            lambda c: branches.end_merge(c, name, reached, record.step),
            ours,
        )

    def _conclude(self, record: CallRecord, merge: BranchRecord) -> Effect:
        workspace, head = self._scope.workspace, self._scope.workspace.head()
        left = merging.unresolved(workspace, self._milestones.conflicts(merge))
        if left:
            return self._landing.settle(record, Effect(False, unresolved(merge.name, left)))
        work = workspace.snapshot(durable=False)
        return self._land(record, merge.name, head.branch, head.sha or "", merge.theirs or "", work)

    def _give_up(self, record: CallRecord, name: str, merge: BranchRecord | None) -> Effect:
        if merge is None or merge.name != name:
            return self._landing.settle(record, Effect(False, f"no merge of {name!r} waits"))
        workspace, head = self._scope.workspace, self._scope.workspace.head()
        assert head.sha is not None
        effect = Effect(
            True,
            f"the merge of {name} is undone; the branch is still there",
            head.branch,
            workspace.work_tree(head.sha),
            head.sha,
        )
        return self._landing.settle(record, effect, lambda c: branches.set_branch(c, name, merging=None, theirs=None))

    def _fold(self, key: CallKey, name: str, effect: Effect) -> None:
        """Show the steps that this rollout did on a branch which has ended as one block."""
        found = self._rt.journal.read(lambda c: branches.find_branch(c, name))
        if not effect.ok or found is None or found.state not in ("merged", "abandoned"):
            return
        # Only the last stretch of steps that ended on it: what was done elsewhere in between is not the branch's.
        stretch = self._rt.journal.read(lambda c: steps.last_stretch(c, key.rollout, name))
        if stretch is not None:
            summary = f"branch {name} ({found.purpose}) {found.state}: {found.summary or ''}"
            fold_branch(self._rt, key.rollout, key.step, *stretch, summary)

    def _pend(self, name: str, into: str, theirs: str) -> Any:
        def pend(connection: Any) -> None:
            if branches.find_branch(connection, name) is None:
                branches.add_branch(connection, self._outside(None, name, into))
            branches.set_branch(connection, name, merging=into, theirs=theirs)

        return pend

    def _outside(self, record: CallRecord | None, name: str, into: str) -> BranchRecord:
        """Return the record of a branch that a person made."""
        rollout, step = self._scope.rollout.id, record.step if record else 0
        return BranchRecord(
            f"outside-{name}", name, "made outside of the run", into, None, rollout, step, "open", self._rt.clock()
        )

    def _unfit(self, name: str, purpose: str) -> str:
        """Say why a branch cannot be made; an empty string when it can."""
        if not purpose:
            return "BRANCH needs a purpose: what is to be found out or made there"
        try:
            self._scope.workspace.check_new_branch(name)
        except WorkspaceError as error:
            return f"{error.message}: {error.hint}"
        return ""

    def _waiting(self, branch: str) -> str:
        merge = self._rt.journal.read(lambda c: branches.pending_merge(c, branch))
        if merge is None:
            return ""
        return (
            f"a merge of {merge.name} waits: resolve its conflicts and COMMIT, or MERGE({merge.name!r}, abandon=True)"
        )

    def _open(self) -> str:
        return f"there are {', '.join(sorted(self._scope.workspace.branches()))}"

    @staticmethod
    def _inner(key: CallKey, when: str) -> CallKey:
        """Return the key of the commit that a branch call makes first."""
        return CallKey(key.rollout, key.step, "commit", f"{when} {key.kind} {key.args_hash}", key.n)
