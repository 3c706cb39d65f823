"""Nothing that was written in a worktree is dropped when it is taken away, whatever became of it; and no record of it stays."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.workspaces.gits import git, milestone
from workspaces import worktrees
from workspaces.errors import WorkspaceError
from workspaces.workspace import Workspace


@pytest.fixture
def place(ws: Workspace) -> Path:
    """A worktree of branch `x` with a file that is in no commit."""
    (ws.path / "a").write_text("a")
    ws.move_ref("refs/heads/x", milestone(ws, "base"), None)
    path = ws.path / ".rlm-agent/worktrees/x"
    worktrees.add(ws, path, "x").close()
    (path / "late").write_text("not committed")
    return path


def rescued(ws: Workspace) -> dict[str, str]:
    """Return what is saved of all that is in no branch: each file with its content."""
    aside = ws.private / "rescue"
    found = {
        str(file.relative_to(aside)): file.read_text("utf-8", "replace") for file in aside.rglob("*") if file.is_file()
    }
    for ref in ws.refs("refs/rlm-agent/rescue/"):
        names = git(ws.path, "ls-tree", "-r", "-z", "--name-only", ref).split("\0")
        found |= {f"{ref}/{name}": git(ws.path, "show", f"{ref}:{name}") for name in names if name}
    return {name.rpartition("/")[2]: text for name, text in found.items()}


@pytest.mark.parametrize("how", ["detached", "other branch", "no .git", "foreign repository", "a file"])
def test_what_stands_where_a_worktree_is_made_is_saved_first(ws: Workspace, place: Path, how: str) -> None:
    if how == "detached":
        git(place, "checkout", "-q", "--detach")
    elif how == "other branch":
        git(place, "switch", "-q", "-c", "mine")
    elif how == "a file":
        shutil.rmtree(place)
        place.write_text("not committed")
    else:
        (place / ".git").unlink()
        if how == "foreign repository":
            git(place, "init", "-q")
    with worktrees.add(ws, place, "x") as made:
        assert made.head().branch == "x" and sorted(p.name for p in place.iterdir()) == [".GCC", ".git", "a"]
    assert "not committed" in rescued(ws).values()


def test_a_worktree_that_git_knows_nothing_of_is_moved_aside(ws: Workspace, place: Path) -> None:
    (place / ".git").unlink()
    worktrees.remove(ws, place)
    assert not place.exists() and rescued(ws)["late"] == "not committed"
    assert git(ws.path, "worktree", "list").count("\n") == 1


def test_what_no_snapshot_holds_is_moved_aside(ws: Workspace, place: Path) -> None:
    (place / ".env").write_text("KEY=1")
    with (place / "big").open("wb") as file:
        file.truncate(200 << 20)
    (place / "inner").mkdir()
    git(place / "inner", "init", "-q")
    git(place / "inner", "commit", "-q", "--allow-empty", "-m", "a story of its own")
    worktrees.remove(ws, place)
    aside = next((ws.private / "rescue/worktrees").iterdir())
    assert (aside / ".env").read_text() == "KEY=1" and (aside / "big").stat().st_size == 200 << 20
    assert "a story of its own" in git(aside / "inner", "log", "--format=%s")
    assert not place.exists() and rescued(ws)["late"] == "not committed"


@pytest.mark.parametrize("left", ["folder", "record"])
def test_a_git_that_was_killed_while_it_made_a_worktree_blocks_nothing(ws: Workspace, place: Path, left: str) -> None:
    record = ws.path / ".git/worktrees/x"
    (record / "rlm-agent-placed").unlink()
    (record / "locked").write_text("initializing")
    (record / "HEAD").write_text("0" * 40 + "\n")
    if left == "record":
        shutil.rmtree(place)
    with worktrees.add(ws, place, "x") as made:
        assert made.head().branch == "x" and (place / "a").read_text() == "a"
    worktrees.remove(ws, place)
    assert git(ws.path, "worktree", "list").count("\n") == 1


def test_one_branch_is_not_checked_out_twice(ws: Workspace, tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="already checked out"):
        worktrees.add(ws, tmp_path / "again", "main")


def test_another_persons_worktree_keeps_its_record(ws: Workspace, place: Path, tmp_path: Path) -> None:
    git(ws.path, "worktree", "add", "-q", "-b", "theirs", str(tmp_path / "disk"))
    (tmp_path / "disk").rename(tmp_path / "unplugged")
    worktrees.remove(ws, place)
    (tmp_path / "unplugged").rename(tmp_path / "disk")
    assert git(tmp_path / "disk", "status", "--porcelain") == ""
