"""Making, opening and committing: what git itself says about the result."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.workspaces.gits import assert_sound, git, milestone
from workspaces.errors import NotAWorkspace, WorkspaceError
from workspaces.workspace import Workspace


def test_a_new_workspace_is_a_clean_repository_with_one_commit(ws: Workspace) -> None:
    assert git(ws.path, "status", "--porcelain") == ""
    assert git(ws.path, "log", "--format=%s|%an <%ae>").strip() == "Start of words|rlm-agent <rlm-agent@localhost>"
    assert git(ws.path, "ls-files").split() == [
        ".GCC/branches/main/commit.md",
        ".GCC/branches/main/log.md",
        ".GCC/branches/main/metadata.yaml",
        ".GCC/main.md",
    ]
    assert (ws.path / ".rlm-agent" / ".gitignore").read_text() == "*\n"
    assert git(ws.path, "config", "gc.auto").strip() == "0"
    assert ws.head().branch == "main"
    assert_sound(ws)


def test_a_milestone_is_a_commit_that_git_log_tells_and_status_finds_clean(ws: Workspace) -> None:
    (ws.path / "out").mkdir()
    (ws.path / "out" / "report.md").write_text("42 words\n")
    commit = milestone(ws, "Count them\n\nThere are 42.\n\nRlm-Run: r1\nRlm-Step: 7\n")
    assert git(ws.path, "status", "--porcelain") == ""
    assert git(ws.path, "log", "--format=%s").split("\n")[:2] == ["Count them", "Start of words"]
    assert git(ws.path, "show", "HEAD:out/report.md") == "42 words\n"
    entry = ws.log("main", 1)[0]
    assert (entry.sha, entry.subject, entry.body) == (commit, "Count them", "There are 42.")
    assert entry.trailers == {"Rlm-Run": "r1", "Rlm-Step": "7"}
    assert entry.when == 1_700_000_100
    assert ws.file_at("main", "out/report.md") == b"42 words\n"
    assert ws.file_at("main", "out") is None
    assert ws.file_at("nowhere", "out") is None
    assert_sound(ws)


def test_the_branch_files_are_in_milestones_and_not_in_snapshots(ws: Workspace) -> None:
    tree = ws.snapshot()
    full = ws.full_tree(tree)
    assert ".GCC/main.md" in git(ws.path, "ls-tree", "-r", "--name-only", tree)
    assert ".GCC/branches" not in git(ws.path, "ls-tree", "-r", "--name-only", tree)
    assert ".GCC/branches/main/log.md" in git(ws.path, "ls-tree", "-r", "--name-only", full)


def test_a_folder_with_other_things_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("…")
    with pytest.raises(NotAWorkspace, match="not empty") as caught:
        Workspace.create(tmp_path / "mine", "x", "x")
    assert caught.value.exit_code == 2
    assert caught.value.hint
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
    with pytest.raises(NotAWorkspace):
        Workspace.open(tmp_path / "mine")
    with pytest.raises(NotAWorkspace):
        Workspace.open(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "point", ["create.claimed", "create.init", "objects.written", "objects.durable", "ref.durable"]
)
def test_a_making_that_was_cut_off_is_completed(tmp_path: Path, point: str) -> None:
    class Cut(Exception):
        pass

    def cut(name: str) -> None:
        if name == point:
            raise Cut

    with pytest.raises(Cut):
        Workspace.create(tmp_path / "ws", "goal", "n", boundary=cut, when=1)
    with pytest.raises(NotAWorkspace):
        Workspace.open(tmp_path / "ws")
    with Workspace.create(tmp_path / "ws", "goal", "n", when=1) as ws:
        assert git(ws.path, "log", "--format=%s").split("\n") == ["Start of n", ""]
        assert git(ws.path, "status", "--porcelain") == ""
        assert_sound(ws)


def test_making_it_again_changes_nothing(ws: Workspace) -> None:
    (ws.path / "a").write_text("1")
    commit = milestone(ws, "one")
    (ws.path / "b").write_text("2")
    with Workspace.create(ws.path, "other goal", "other") as again:
        assert again.head().sha == commit
    assert (ws.path / "b").read_text() == "2"


@pytest.mark.parametrize("branch", ["main", "develop"])
def test_a_clone_starts_from_the_source_and_never_touches_it(tmp_path: Path, branch: str) -> None:
    source = tmp_path / "source"
    git(tmp_path, "init", "-q", "-b", branch, str(source))
    (source / "lib").mkdir()
    (source / "lib" / "a.py").write_bytes(b"print(1)\r\n")
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    (source / ".gitattributes").write_text("* text eol=lf\n")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "theirs")
    before = sorted((p, p.stat().st_mtime_ns) for p in source.rglob("*"))
    with Workspace.create(tmp_path / "ws", "goal", "n", clone=source) as ws:
        assert (ws.path / "run.sh").stat().st_mode & 0o100
        assert git(ws.path, "log", "--format=%s").split("\n")[:2] == ["Start of n", "theirs"]
        assert git(ws.path, "status", "--porcelain") == ""
        assert ws.head().branch == "main"
        assert_sound(ws)
    assert sorted((p, p.stat().st_mtime_ns) for p in source.rglob("*")) == before


def test_a_users_and_a_repositorys_configuration_runs_no_program(ws: Workspace, isolated: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    hook = ws.path / ".git" / "hooks" / "reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    git(ws.path, "config", "core.fsmonitor", f"touch {ran}")
    (isolated / ".gitconfig").write_text("[commit]\n\tgpgSign = true\n[core]\n\texcludesFile = /everything\n")
    (ws.path / "a").write_text("1")
    milestone(ws, "one")
    assert not ran.exists()


def test_a_locked_index_says_so(ws: Workspace) -> None:
    (ws.path / ".git" / "index.lock").touch()
    with pytest.raises(WorkspaceError) as caught:
        ws.sync_index()
    assert caught.value.kind == "locked"
    assert caught.value.hint
    assert "index.lock" in ws.clear_stale_locks()
    ws.sync_index()


def test_a_checked_out_commit_is_named_with_the_way_back(ws: Workspace) -> None:
    git(ws.path, "checkout", "-q", "--detach")
    with pytest.raises(WorkspaceError, match="no branch") as caught:
        ws.head()
    assert "git switch" in caught.value.hint


def test_switching_the_head(ws: Workspace) -> None:
    start = ws.head().sha
    assert start is not None
    ws.move_ref("refs/heads/try/one", start, None)
    ws.switch_head("try/one")
    assert ws.head().branch == "try/one"
    assert git(ws.path, "symbolic-ref", "HEAD").strip() == "refs/heads/try/one"


def test_changes_between_trees(ws: Workspace) -> None:
    (ws.path / "keep").write_text("k")
    (ws.path / "turn").write_text("file")
    (ws.path / "gone").write_text("g")
    one = ws.snapshot()
    (ws.path / "gone").unlink()
    (ws.path / "turn").unlink()
    (ws.path / "turn").mkdir()
    (ws.path / "turn" / "x").write_text("x")
    (ws.path / "new").write_text("n")
    two = ws.snapshot()
    found = {(c.status, c.path) for c in ws.changes(one, two)}
    assert found == {("D", "gone"), ("D", "turn"), ("A", "turn/x"), ("A", "new")}
    listed = git(ws.path, "diff", "--name-status", "--no-renames", one, two)
    assert {tuple(line.split("\t")) for line in listed.splitlines()} == found


def test_no_processes_are_left_after_closing(tmp_path: Path) -> None:
    ws = Workspace.create(tmp_path / "ws", "g", "n")
    (ws.path / "a").write_text("1")
    milestone(ws, "one")
    ws.log("main", 3)
    ws.close()
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert str(tmp_path) not in listed
    open_files = [p for p in Path("/proc/self/fd").iterdir() if str(tmp_path) in str(p.resolve())]
    assert open_files == []
