"""Which names of a folder a snapshot holds: what the user's rules, git's index and what can't be committed leave of them."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable
from typing import Protocol

from workspaces.objects import GITLINK
from workspaces.rules import is_dot_git, is_secret
from workspaces.seen import File, Folder, Scope, Signature, Skipped, read_at


class Name(Protocol):
    """A name in a folder, as a listing or a mark gives it."""

    @property
    def name(self) -> str: ...
    def is_dir(self, *, follow_symlinks: bool = ...) -> bool: ...
    def is_symlink(self) -> bool: ...


class Marked:
    """A name that a mark told of, with its mode."""

    def __init__(self, name: str, mode: int) -> None:
        self.name, self._mode = name, mode

    def is_dir(self, *, follow_symlinks: bool = False) -> bool:
        return stat.S_ISDIR(self._mode)

    def is_symlink(self) -> bool:
        return stat.S_ISLNK(self._mode)


class Choosing:
    """The choices of one scope."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        #: whether git was made to read the user's rules anew in this scan
        self.rules_read_again = False

    def refresh(self, is_seen: Callable[[str], bool]) -> bool:
        """Begin a scan: read git's index where it has changed; say whether that can change what is left out."""
        self.rules_read_again = False
        tracked, out = self._scope.tracked, tuple(f"{path}/" for path in self._scope.left_out)
        return tracked is not None and tracked.refresh(lambda path: path.startswith(out), is_seen)

    def kept(
        self,
        prefix: str,
        node: Folder,
        entries: Iterable[Name],
        links: dict[str, str],
        skipped: list[Skipped],
    ) -> list[Name]:
        """Return those of the entries that a snapshot holds."""
        scope = self._scope
        kept: list[Name] = []
        open_questions: list[Name] = []
        for entry in entries:
            name, path = entry.name, prefix + entry.name
            if path in scope.left_out or (name == ".git" and scope.rules is not None):
                continue
            if is_dot_git(name) or (name.lower() == ".gitmodules" and entry.is_symlink()):
                skipped.append(Skipped(path, "git"))
                continue
            link = self._gitlink(path)
            if link is not None and entry.is_dir(follow_symlinks=False):
                links[name] = link
                continue
            if scope.rules is None or self._is_tracked(path):
                kept.append(entry)
            elif is_secret(name):
                skipped.append(Skipped(path, "secret"))
            else:
                open_questions.append(entry)
        if open_questions and scope.rules is not None:
            unknown = [entry.name for entry in open_questions if entry.name not in node.verdicts]
            answers = scope.rules.ignored([prefix + name for name in unknown])
            node.verdicts.update(zip(unknown, answers, strict=True))
            kept += [entry for entry in open_questions if not node.verdicts[entry.name]]
        return kept

    def _gitlink(self, path: str) -> str | None:
        tracked = self._scope.tracked
        found = tracked.files.get(path) if tracked is not None else None
        return found[1] if found is not None and found[0] == GITLINK else None

    def _is_tracked(self, path: str) -> bool:
        tracked = self._scope.tracked
        return tracked is not None and (path in tracked.files or path in tracked.folders)

    def rules_changed(self, fd: int, node: Folder, present: bool) -> bool:
        """Tell whether this folder's `.gitignore` is another than at the last scan, and have git read it again."""
        content = None
        if present:
            try:
                content = read_at(fd, ".gitignore")
            except OSError:
                content = None
        if content == node.rules:
            return False
        node.rules = content
        if self._scope.rules is not None and not self.rules_read_again:
            # Once a scan is enough: git reads a folder's rules when it is first asked about something inside.
            self._scope.rules.forget()
            self.rules_read_again = True
        return True

    def last_tracked(self, path: str, signature: Signature) -> File | None:
        """Keep what git has of a file that can't be taken in now: leaving it out would delete it from the branch."""
        tracked = self._scope.tracked
        found = tracked.files.get(path) if tracked is not None else None
        return File(signature, True, found[0], bytes.fromhex(found[1])) if found is not None else None
