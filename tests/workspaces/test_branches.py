"""Branches and merges on a real repository: names, what a commit holds of other branches, conflicts of each kind, worktrees."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workspaces.gits import git
from workspaces import gcc, merging, worktrees
from workspaces.errors import WorkspaceError
from workspaces.workspace import Workspace

WHEN = 1_700_000_000


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace.create(tmp_path / "w", "A goal.", "t", when=WHEN) as made:
        yield made


def write(ws: Workspace, **files: str) -> None:
    for name, text in files.items():
        (ws.path / name.replace("__", "/").replace("_dot_", ".")).write_text(text)


def commit(ws: Workspace, subject: str, **files: str) -> str:
    write(ws, **files)
    head = ws.head()
    tree = ws.full_tree(ws.snapshot(), head.branch, [head.sha] if head.sha else [])
    made = ws.write_commit(tree, [head.sha] if head.sha else [], subject, WHEN)
    ws.move_ref(f"refs/heads/{head.branch}", made, head.sha)
    ws.sync_index()
    return made


def branch(ws: Workspace, name: str, at: str) -> None:
    ws.move_ref(f"refs/heads/{name}", at, None)


def switch(ws: Workspace, name: str) -> None:
    at = ws.branches()[name]
    ws.restore(ws.work_tree(at), "test", {ws.work_tree(ws.head().sha or "")})
    ws.switch_head(name)
    ws.place_branch_files(at)
    ws.sync_index()


@pytest.mark.parametrize("name", ["", "HEAD", "head/x", "-x", "a..b", "a b", "x.lock", "a/", "/a", "ä", "main", "Main", "main/x", "refs/heads/x",
    "0" * 40, "a" * 200, "rewound/x", "a\nb", "@{x}", "a~1", "have", "Have/other"])  # fmt: skip
def test_a_name_that_cannot_be_a_branch_is_refused_with_the_reason(ws: Workspace, name: str) -> None:
    branch(ws, "have/it", ws.head().sha or "")
    with pytest.raises(WorkspaceError) as told:
        ws.check_new_branch(name)
    assert told.value.kind == "usage" and told.value.hint


def test_branches_are_found_loose_and_packed(ws: Workspace) -> None:
    at = ws.head().sha or ""
    branch(ws, "idea/a", at)
    git(ws.path, "pack-refs", "--all")
    branch(ws, "idea/b", at)
    assert ws.branches() == {"main": at, "idea/a": at, "idea/b": at}
    ws.check_new_branch("idea/c")


def test_a_commit_carries_other_branches_from_its_parent_and_its_own_from_disk(ws: Workspace) -> None:
    base = commit(ws, "base", a_dot_txt="1")
    gcc.write_branch_files(ws.path, "x", "why", [], [], {"branch": {"name": "x"}})
    tree = ws.full_tree(ws.snapshot(), "x", [base])
    branch(ws, "x", ws.write_commit(tree, [base], "branch x", WHEN))
    assert ws.file_at("x", ".GCC/branches/main/commit.md") and ws.file_at("x", ".GCC/branches/x/commit.md")
    (ws.path / ".GCC/branches/x/commit.md").write_text("not mine to commit")
    commit(ws, "on main", a_dot_txt="2")
    assert ws.file_at("main", ".GCC/branches/x/commit.md") is None
    switch(ws, "x")
    assert git(ws.path, "status", "--porcelain") == "" and (ws.path / "a.txt").read_text() == "1"
    switch(ws, "main")
    assert git(ws.path, "status", "--porcelain") == "" and not (ws.path / ".GCC/branches/x").exists()
    assert git(ws.path, "for-each-ref", "refs/rlm-agent/rescue") == "", "what is committed needs no rescue"


def test_what_a_person_put_among_the_derived_files_is_moved_aside(ws: Workspace) -> None:
    base = commit(ws, "base", a_dot_txt="1")
    branch(ws, "x", base)
    (ws.path / ".GCC/branches/main/notes.md").write_text("mine")
    switch(ws, "x")
    assert not (ws.path / ".GCC/branches/main/notes.md").exists()
    assert (ws.path / ".rlm-agent/rescue/branches/main/notes.md").read_text() == "mine"


def test_what_was_moved_aside_before_stays(ws: Workspace) -> None:
    branch(ws, "x", commit(ws, "base", a_dot_txt="1"))
    for name in ("x", "main"):
        (ws.path / ".GCC/branches/other").mkdir(exist_ok=True)
        (ws.path / ".GCC/branches/other/notes.md").write_text(f"before {name}")
        switch(ws, name)
    kept = (ws.path / ".rlm-agent/rescue/branches/other").iterdir()
    assert sorted(file.read_text() for file in kept) == ["before main", "before x"]


def test_a_link_in_the_place_of_a_branchs_folder_is_not_followed(ws: Workspace, tmp_path: Path) -> None:
    base = commit(ws, "base", a_dot_txt="1")
    gcc.write_branch_files(ws.path, "x", "why", [], [], {})
    branch(ws, "x", ws.write_commit(ws.full_tree(ws.snapshot(), "x", [base]), [base], "branch x", WHEN))
    (tmp_path / "commit.md").write_text("not yours")
    (ws.path / ".GCC/branches/x").rename(tmp_path / "away")
    (ws.path / ".GCC/branches/x").symlink_to(tmp_path)
    switch(ws, "x")
    assert (tmp_path / "commit.md").read_text() == "not yours" and not (ws.path / ".GCC/branches/x").is_symlink()
    assert git(ws.path, "status", "--porcelain") == ""


def two_sides(ws: Workspace, ours: dict[str, str], theirs: dict[str, str], base: dict[str, str]) -> tuple[str, str]:
    at = commit(ws, "base", **base)
    branch(ws, "x", at)
    mine = commit(ws, "ours", **ours)
    switch(ws, "x")
    other = commit(ws, "theirs", **theirs)
    switch(ws, "main")
    return mine, other


def test_two_sides_that_do_not_meet_are_merged_as_git_merges(ws: Workspace) -> None:
    ours, theirs = two_sides(ws, {"a": "A"}, {"b": "B"}, {"c": "C"})
    merged = merging.merge_trees(ws, ours, theirs, "main", "x")
    assert (merged.state, merged.conflicts) == ("merged", ())
    ws.restore(merged.tree, "m")
    assert {name: (ws.path / name).read_text() for name in "abc"} == {"a": "A", "b": "B", "c": "C"}
    assert merging.diffstat(ws, ours, merged.tree, 5) == "b +1 -0"
    assert merging.merge_trees(ws, ours, ws.head().sha or "", "main", "main").state == "already"


def test_conflicts_stand_in_the_files_under_the_branches_names(ws: Workspace) -> None:
    ours, theirs = two_sides(ws, {"a": "1\nours\n3\n"}, {"a": "1\ntheirs\n3\n"}, {"a": "1\n2\n3\n"})
    merged = merging.merge_trees(ws, ours, theirs, "main", "x")
    assert (merged.state, merged.conflicts) == ("conflicts", ("a",))
    ws.restore(merged.tree, "m")
    text = (ws.path / "a").read_text()
    assert "<<<<<<< main\nours\n=======\ntheirs\n>>>>>>> x\n" in text
    assert merging.unresolved(ws, merged.conflicts) == ["a"]
    (ws.path / "a").write_text("1\nboth\n3\n")
    assert merging.unresolved(ws, merged.conflicts) == []


def test_longer_marks_of_a_conflict_are_seen(ws: Workspace) -> None:
    base = {"a": "1\n", "_dot_gitattributes": "a conflict-marker-size=20\n"}
    ours, theirs = two_sides(ws, {"a": "2\n"}, {"a": "3\n"}, base)
    merged = merging.merge_trees(ws, ours, theirs, "main", "x")
    ws.restore(merged.tree, "m")
    assert "<" * 20 in (ws.path / "a").read_text() and merging.unresolved(ws, merged.conflicts) == ["a"]


def test_deleted_here_and_changed_there_is_a_conflict_that_keeps_the_change(ws: Workspace) -> None:
    at = commit(ws, "base", a="one\n", b="b")
    branch(ws, "x", at)
    (ws.path / "a").unlink()
    ours = commit(ws, "ours")
    switch(ws, "x")
    theirs = commit(ws, "theirs", a="two\n")
    merged = merging.merge_trees(ws, ours, theirs, "main", "x")
    assert merged.conflicts == ("a",) and ws.file_at(merged.tree, "a") == b"two\n"


def test_binary_files_that_differ_keep_our_side(ws: Workspace) -> None:
    ours, theirs = two_sides(ws, {"a": "\0ours"}, {"a": "\0theirs"}, {"a": "\0base"})
    merged = merging.merge_trees(ws, ours, theirs, "main", "x")
    assert merged.conflicts == ("a",) and ws.file_at(merged.tree, "a") == b"\0ours"


def test_odd_names_links_and_modes_go_through_a_merge(ws: Workspace) -> None:
    at = commit(ws, "base", a="a")
    branch(ws, "x", at)
    commit(ws, "ours", b="b")
    switch(ws, "x")
    odd = os.fsdecode(b"new\nline \xff'\".txt")
    (ws.path / odd).write_text("odd")
    (ws.path / "link").symlink_to("a")
    (ws.path / "run").write_text("#!/bin/sh\n")
    (ws.path / "run").chmod(0o755)
    (ws.path / "empty").mkdir()
    commit(ws, "theirs")
    switch(ws, "main")
    merged = merging.merge_trees(ws, "main", "x", "main", "x")
    ws.restore(merged.tree, "m")
    assert (
        (ws.path / odd).read_text() == "odd"
        and os.readlink(ws.path / "link") == "a"
        and os.access(ws.path / "run", os.X_OK)
    )


def test_the_lines_of_both_roadmaps_are_kept(ws: Workspace) -> None:
    base = (ws.path / ".GCC/main.md").read_text()
    at = commit(ws, "base")
    branch(ws, "x", at)
    (ws.path / ".GCC/main.md").write_text(base + "- [ ] ours\n")
    ours = commit(ws, "ours")
    switch(ws, "x")
    (ws.path / ".GCC/main.md").write_text(base + "- [ ] theirs\n")
    theirs = commit(ws, "theirs")
    merged = merging.merge_trees(ws, ours, theirs, "main", "x")
    text = (ws.file_at(merged.tree, ".GCC/main.md") or b"").decode()
    assert merged.state == "merged" and "- [ ] ours" in text and "- [ ] theirs" in text


def test_histories_with_nothing_in_common_are_not_merged(ws: Workspace) -> None:
    other = ws.write_commit(ws.snapshot(), [], "alone", WHEN)
    branch(ws, "alone", other)
    with pytest.raises(WorkspaceError, match="no common history"):
        merging.merge_trees(ws, ws.head().sha or "", other, "main", "alone")


def test_a_merge_that_waits_is_seen_by_plain_git(ws: Workspace) -> None:
    _, theirs = two_sides(ws, {"a": "1"}, {"a": "2"}, {"a": "0"})
    ws.note_merge(theirs)
    assert "merging" in git(ws.path, "status")
    ws.note_merge(None)
    assert "merging" not in git(ws.path, "status")


class Killed(Exception):
    pass


@pytest.mark.parametrize("at", ["", "worktree.added", "worktree.placed"])
def test_a_worktree_is_whole_whenever_its_making_was_cut_off(ws: Workspace, tmp_path: Path, at: str) -> None:
    branch(ws, "idea/a", commit(ws, "base", a="a"))

    def boundary(name: str) -> None:
        if name == at:
            raise Killed

    path = ws.path / ".rlm-agent/worktrees/idea__a"
    if at:
        with pytest.raises(Killed):
            worktrees.add(ws, path, "idea/a", boundary)
    tree = worktrees.add(ws, path, "idea/a")
    assert (path / "a").read_text() == "a" and tree.head().branch == "idea/a"
    assert git(path, "status", "--porcelain") == "" and str(path) in git(ws.path, "worktree", "list")
    (path / "b").write_text("b")
    made = commit(tree, "more")
    assert ws.branches()["idea/a"] == made and ws.head().branch == "main"
    assert gcc.context_overview(path, 5000).count("idea/a (here)") == 1
    tree.close()


def test_a_worktree_leaves_nothing_unsaved_behind(ws: Workspace) -> None:
    branch(ws, "x", commit(ws, "base", a="a"))
    path = ws.path / ".rlm-agent/worktrees/x"
    worktrees.add(ws, path, "x").close()
    (path / "late").write_text("not committed")
    worktrees.remove(ws, path)
    worktrees.remove(ws, path)
    assert not path.exists() and git(ws.path, "worktree", "list").count("\n") == 1
    rescue = git(ws.path, "for-each-ref", "--format=%(refname)", "refs/rlm-agent/rescue").strip()
    assert git(ws.path, "show", f"{rescue}:late") == "not committed"
    assert git(ws.path, "fsck", "--strict", "--no-dangling") == ""


def test_a_worktree_whose_commit_is_on_no_branch_stays(ws: Workspace) -> None:
    branch(ws, "x", commit(ws, "base", a="a"))
    path = ws.path / ".rlm-agent/worktrees/x"
    worktrees.add(ws, path, "x").close()
    git(path, "checkout", "-q", "--detach")
    git(path, "commit", "-q", "--allow-empty", "-m", "lone")
    with pytest.raises(WorkspaceError, match="on no branch"):
        worktrees.remove(ws, path)
    assert path.exists()
