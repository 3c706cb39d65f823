"""What a person did to the tree behind the run's back: edits, commits, another branch checked out, history rewritten.

The person is followed: what they wrote, committed or checked out is where the work goes on, and the model is told by name. What
their change would drop is kept under refs/rlm-agent/rescue. A detached HEAD is a look around, not a wish: the branch comes back.
"""

from __future__ import annotations

import json
from typing import Any

from ulid import ULID

from agent.scope import Scope
from state import calls as journal_calls
from state import runs
from state.records import StepRecord
from workspaces.errors import WorkspaceError
from workspaces.workspace import Head

_SHOWN = 20


class Outside:
    """Looks before each prompt at what somebody else changed in one rollout's tree."""

    def __init__(self, scope: Scope) -> None:
        self._scope, self._rt, self._rollout = scope, scope.runtime, scope.rollout.id

    def look(self, last: StepRecord) -> list[str]:
        """Return what is to be told about changes since step `last`, one line each."""
        if last.tree is None:
            return []
        head, told = self._attached(last)
        if told:
            return told
        told = self._moved(head)
        workspace = self._scope.workspace
        changes = workspace.changes(last.tree, workspace.snapshot(durable=False, full=False))
        if last.branch not in (None, head.branch):
            self._note(last.seq, "checked_out", branch=head.branch, before=last.branch)
            told.append(
                f"Someone checked out branch {head.branch} (you were on {last.branch}): {len(changes)} files differ. "
                f"SWITCH({last.branch!r}) goes back."
            )
        elif changes:
            names = ", ".join(f"{c.path} ({c.status})" for c in changes[:_SHOWN])
            more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
            told.append(f"Changed in the workspace by someone else: {names}{more}.")
        return told

    def _attached(self, last: StepRecord) -> tuple[Head, list[str]]:
        """Return HEAD; where no branch is checked out, or its branch is gone, put back what the last step left."""
        workspace = self._scope.workspace
        try:
            head = workspace.head()
        except WorkspaceError as error:
            if error.kind != "detached":
                raise
            branch = last.branch or "main"
            at = workspace.read_ref("HEAD")
            workspace.switch_head(branch)
            restored = workspace.restore(last.tree or "", str(ULID()))
            workspace.sync_index()
            self._note(last.seq, "attached", branch=branch, at=at, rescue=restored.rescue)
            kept = f"; what was in the files is kept as {restored.rescue}" if restored.rescue else ""
            return workspace.head(), [
                f"Someone had checked out a commit and no branch; you are on {branch} again{kept}."
            ]
        known = self._known(head.branch)
        if head.sha is None and known is not None:
            workspace.move_ref(f"refs/heads/{head.branch}", known, None)
            self._note(last.seq, "branch_back", branch=head.branch, at=known)
            return workspace.head(), [f"Someone had deleted branch {head.branch}; it is back at {known[:8]}."]
        return head, []

    def _moved(self, head: Head) -> list[str]:
        """Tell commits that the run did not make, and history that was rewritten."""
        known, workspace = self._known(head.branch), self._scope.workspace
        self._rt.heads[head.branch] = head.sha
        if known is None or head.sha is None or head.sha == known:
            return []
        if workspace.is_ancestor(known, head.sha):
            new = workspace.log(head.sha, _SHOWN)
            subjects = [
                entry.subject for entry in new if entry.sha != known and not workspace.is_ancestor(entry.sha, known)
            ]
            self._note(None, "committed_outside", branch=head.branch, before=known, after=head.sha)
            return [f"Someone committed on {head.branch}: {'; '.join(subjects)}."]
        rescue = f"refs/rlm-agent/rescue/{ULID()}"
        workspace.move_ref(rescue, known, None)
        self._note(None, "history_rewritten", branch=head.branch, before=known, after=head.sha, rescue=rescue)
        return [
            f"Someone rewrote the history of {head.branch}: it is at {head.sha[:8]}, and no longer has {known[:8]}, "
            f"which is kept as {rescue}."
        ]

    def _known(self, branch: str) -> str | None:
        """Return where the run itself last left a branch, or None for one that it never moved."""
        if branch not in self._rt.heads:
            self._rt.heads[branch] = self._rt.journal.read(lambda c: _left_at(c, branch, self._rollout))
        return self._rt.heads[branch]

    def _note(self, step: int | None, kind: str, **facts: Any) -> None:
        self._rt.journal.write(lambda c: runs.add_event(c, self._rt.clock(), kind, self._rollout, step, **facts))
        self._rt.tell(kind, **facts)


def _left_at(connection: Any, branch: str, rollout: str) -> str | None:
    """Return the later of where the run moved a branch and where it last saw that somebody else had moved it."""
    landed = journal_calls.last_landing(connection, f"refs/heads/{branch}")
    for event in runs.last_events(connection, ("committed_outside", "history_rewritten"), rollout, _SHOWN):
        seen = json.loads(event.body)
        if seen["branch"] == branch and (landed is None or event.at > landed[1]):
            return str(seen["after"])
    return landed[0] if landed is not None else None
