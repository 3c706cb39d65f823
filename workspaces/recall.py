"""Reading `.GCC` back in small pieces, for CONTEXT: each answer is capped and its last line says how to get
more.

The checked-out branch is read from its files, every other from git, never from the tree that happens to be
checked out.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path

from workspaces.command import run_git
from workspaces.ledger import segments, split_entries
from workspaces.objects import TREE
from workspaces.shared import read_text
from workspaces.store import GitStore, git_folders

MAIN = ".GCC/main.md"
BRANCHES = ".GCC/branches"
_MARGIN = 100
_MAX_BYTES = 16 << 20


def context_overview(ws_path: Path, max_chars: int, offset: int = 0) -> str:
    """Return the roadmap and the branches with their latest commit."""
    roadmap = read_text(ws_path, MAIN)
    if roadmap is None:
        roadmap = "(there is no roadmap: .GCC/main.md is missing)\n"
    current = _current(ws_path)
    lines = [f"- {name}{' (here)' if name == current else ''}: {subject}" for name, subject in _branches(ws_path)]
    return _page(f"{roadmap.rstrip()}\n\n# Branches\n\n" + "\n".join(lines), max_chars, offset, "CONTEXT(")


def context_branch(ws_path: Path, branch: str, max_chars: int, offset: int = 0) -> str:
    """Return a branch's purpose, its latest summary and its commits, newest first.

    Raises ValueError when there is no such branch.
    """
    texts = _ledger(ws_path, branch, "commit")
    entries = split_entries(texts)
    head = texts[-1].partition("\n## ")[0].strip() if texts else f"# Commits of branch {branch}"
    parts = [head, ""]
    if entries:
        latest = entries[-1][1]
        parts += ["Latest commit:", "", _without_purpose(latest), ""]
        parts += ["Commits, newest first:", *(f"- {_title(text)}" for _, text in reversed(entries))]
    else:
        parts.append("No commits yet.")
    return _page("\n".join(parts), max_chars, offset, f"CONTEXT(branch={branch!r}, ")


def context_commit(ws_path: Path, branch: str, commit: str, max_chars: int, offset: int = 0) -> str:
    """Return one commit's entry, named by its id or number.

    Raises ValueError, naming the commits there are, when it is not on the branch.
    """
    entries = split_entries(_ledger(ws_path, branch, "commit"))
    for number, text in reversed(entries):
        if commit in (str(number), _title(text).split(" · ")[0]):
            return _page(text, max_chars, offset, f"CONTEXT(commit={commit!r}, ")
    known = [_title(text).split(" · ")[0] for _, text in entries]
    there = f"there are {known[0]} to {known[-1]}" if known else "it has no commits yet"
    raise ValueError(f"branch {branch} has no commit {commit}; {there}")


def context_log(ws_path: Path, branch: str, lines: int, max_chars: int, offset: int = 0) -> str:
    """Return the last `lines` lines of a branch's log.

    Raises ValueError when the number is not positive or there is no such branch.
    """
    if lines < 1:
        raise ValueError(f"log={lines}: say how many of the last lines to show, at least 1")
    kept: list[str] = []
    with closing(_newest_first(ws_path, branch, "log")) as texts:  # a long log is not read whole for its end
        for text in texts:
            shown = [line for line in text.splitlines() if not line.startswith("<!-- end ")]
            kept = shown[-(lines - len(kept)) :] + kept
            if len(kept) >= lines:
                break
    return _page("\n".join(kept), max_chars, offset, f"CONTEXT(log={lines}, ")


def context_metadata(ws_path: Path, branch: str, segment: str, max_chars: int, offset: int = 0) -> str:
    """Return one top-level part of a branch's metadata.yaml, or with `all` the whole.

    Raises ValueError, naming the parts there are, when it has no such part.
    """
    import yaml

    text = "\n".join(_files(ws_path, branch, ["metadata.yaml"]))
    call = f"CONTEXT(metadata={segment!r}, "
    if segment in ("", "all"):
        return _page(text, max_chars, offset, call)
    try:
        parts = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ValueError(f"metadata.yaml of branch {branch} can't be read: {error}") from error
    if not isinstance(parts, dict) or segment not in parts:
        known = ", ".join(map(str, parts)) or "none"
        raise ValueError(f"metadata.yaml of branch {branch} has no part {segment!r}; there are: {known}")
    shown = yaml.safe_dump({segment: parts[segment]}, sort_keys=False, allow_unicode=True)
    return _page(shown, max_chars, offset, call)


def _page(text: str, max_chars: int, offset: int, call: str) -> str:
    """Return a part of a text, at most `max_chars` long with the line that says how to go on."""
    offset = max(0, offset)
    if offset and offset >= len(text):
        return f"(nothing more: {len(text)} characters in all)"
    if len(text) - offset <= max_chars:
        return text[offset:]
    part = text[offset : offset + max(1, max_chars - _MARGIN)]
    return f"{part}\n… {len(text) - offset - len(part)} more characters: {call}offset={offset + len(part)})"


def _ledger(ws_path: Path, branch: str, stem: str) -> list[str]:
    """Return the texts of a ledger's files, oldest first."""
    return [*_newest_first(ws_path, branch, stem)][::-1]


def _newest_first(ws_path: Path, branch: str, stem: str) -> Generator[str, None, None]:
    """Yield the texts of a ledger's files, each read when it is asked for."""
    if branch == _current(ws_path):
        for path in reversed(segments(ws_path / BRANCHES / branch, stem)):
            yield from _texts(ws_path, [path])
    else:
        yield from _from_git(ws_path, branch, [f"{stem}.md", f"{stem}/"])


def _files(ws_path: Path, branch: str, names: Sequence[str]) -> list[str]:
    """Return the texts of a branch's files."""
    if branch == _current(ws_path):
        return _texts(ws_path, [ws_path / BRANCHES / branch / name for name in names])
    return [*_from_git(ws_path, branch, names)]


def _from_git(ws_path: Path, branch: str, names: Sequence[str]) -> Generator[str, None, None]:
    """Yield the texts of a branch's committed files; a name that ends in a slash stands for all in it, last name first."""
    known = [name for name, _ in _branches(ws_path)]
    if branch not in known:
        raise ValueError(f"there is no branch {branch!r}; there are: {', '.join(known) or 'none'}")
    store = GitStore(ws_path)
    try:
        entries = store.read_tree(store.read_ref(f"refs/heads/{branch}") or "HEAD")
        for part in (*BRANCHES.split("/"), *branch.split("/")):
            found = entries.get(os.fsencode(part))
            entries = store.read_tree(found.sha) if found is not None and found.mode == TREE else {}
        for name in names:
            found = entries.get(name.rstrip("/").encode())
            if found is None:
                continue
            inside = store.read_tree(found.sha) if found.mode == TREE else {b"": found}
            for _, entry in sorted(inside.items(), reverse=True):
                yield store.read_object(entry.sha)[1].decode("utf-8", "replace")
    finally:
        store.close()


def _texts(ws_path: Path, paths: Sequence[Path]) -> list[str]:
    found = [read_text(ws_path, str(path.relative_to(ws_path)), _MAX_BYTES) for path in paths]
    return [text for text in found if text is not None]


def _branches(ws_path: Path) -> list[tuple[str, str]]:
    listed = run_git(ws_path, "for-each-ref", "--format=%(refname:lstrip=2)%09%(subject)", "refs/heads")
    rows = (line.partition("\t") for line in listed.decode("utf-8", "replace").splitlines())
    return [(name, subject) for name, _, subject in rows]


def _current(ws_path: Path) -> str:
    """Return the branch that is checked out, in a worktree too; empty when there is none."""
    text = (git_folders(ws_path)[0] / "HEAD").read_text().strip()
    return text.removeprefix("ref: refs/heads/") if text.startswith("ref: refs/heads/") else ""


def _title(entry: str) -> str:
    return entry.split("\n", 1)[0].removeprefix("## ")


def _without_purpose(entry: str) -> str:
    start, purpose, rest = entry.partition("### Branch Purpose")
    if not purpose:
        return entry
    return start + "### " + rest.partition("\n### ")[2]
