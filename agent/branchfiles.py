"""`.GCC/branches/<b>` of the branch that a rollout works on, brought to what the journal says.

The files are derived: commits, log and metadata come from the journal, so they can be lost, torn or edited, and are made again.
Each step appends its entry; metadata is looked at when something is committed.
"""

from __future__ import annotations

from typing import Any

from agent.repl.cells import parse_thought
from agent.scope import Scope
from state import branches
from state.records import MilestoneRecord
from workspaces import gcc

_LISTED = 40  # names of the top folder that metadata.yaml lists


class BranchFiles:
    """Writes the files of one rollout's branch."""

    def __init__(self, scope: Scope) -> None:
        self._scope, self._rt = scope, scope.runtime
        self._purposes: dict[str, str] = {}
        self._written: set[str] = set()

    def purpose(self, branch: str) -> str:
        """Return what a branch is for: the goal for the first one."""
        if branch not in self._purposes:
            found = self._rt.journal.read(lambda c: branches.find_branch(c, branch))
            goal = self._rt.task.goal.strip().split("\n")[0]
            self._purposes[branch] = found.purpose if found is not None else goal
        return self._purposes[branch]

    def write(self, branch: str | None = None, tree: str | None = None) -> None:
        """Append to the log what is new; with the work's `tree`, or the first time, bring commits and metadata up to date too."""
        workspace = self._scope.workspace
        branch = branch or workspace.head().branch
        purpose = self.purpose(branch)
        metadata: dict[str, Any] = {}
        if tree is not None:
            number = self._rt.journal.read(lambda c: branches.next_commit(c, branch)) - 1
            metadata = {
                "branch": {"name": branch, "purpose": purpose, "commits": number},
                "file_structure": self._files(tree),
            }
        if tree is None and branch in self._written:
            gcc.write_log(workspace.path, branch, lambda after: self._log(branch, after))
            return
        self._written.add(branch)
        gcc.write_branch_files(
            workspace.path,
            branch,
            purpose,
            lambda after: [self._commit(row, purpose) for row in self._commits(branch, after)],
            lambda after: self._log(branch, after),
            metadata,
        )

    def begin(self, branch: str, purpose: str) -> None:
        """Make the files of a new branch: its purpose, and nothing in its log yet."""
        metadata = {"branch": {"name": branch, "purpose": purpose, "commits": 0}}
        gcc.write_branch_files(self._scope.workspace.path, branch, purpose, [], [], metadata)

    def _commits(self, branch: str, after: int) -> list[MilestoneRecord]:
        return self._rt.journal.read(lambda c: branches.commits_after(c, branch, after))

    def _log(self, branch: str, after: int) -> list[gcc.LogRecord]:
        rows = self._rt.journal.read(lambda c: branches.entries_after(c, branch, after))
        return [
            gcc.LogRecord(
                step=row.seq,
                observation=row.observation or "",
                thought=parse_thought(row.reply or ""),
                action=row.cell or "",
                number=row.number,
                origin=row.origin,
            )
            for row in rows
        ]

    @staticmethod
    def _commit(row: MilestoneRecord, purpose: str) -> gcc.CommitRecord:
        return gcc.CommitRecord(
            seq=row.number,
            id=f"C{row.number}",
            summary=row.summary,
            purpose=purpose,
            previous_progress=row.progress,
            contribution=row.contribution,
            step=row.step,
            log_first=row.log_first,
            log_last=row.log_last,
            origin=row.origin,
        )

    def _files(self, tree: str) -> list[str]:
        """List the top folder, folders with how many names are in them."""
        listed = self._scope.workspace.listing(tree)
        shown = [f"{name}/ ({inside})" if inside is not None else name for name, inside in listed if name != ".GCC"]
        return shown[:_LISTED] + ([f"and {len(shown) - _LISTED} more"] if len(shown) > _LISTED else [])
