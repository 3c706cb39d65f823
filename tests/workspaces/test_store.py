"""Objects and refs: compare-and-swap, packed refs, nested names, and what a `kill -9` in the middle leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workspaces.gits import assert_sound, git, milestone
from workspaces.errors import RefConflict, WorkspaceError
from workspaces.objects import EMPTY_TREE, Entry
from workspaces.store import GitStore
from workspaces.workspace import Workspace

REFS = ["refs/heads/one", "refs/rlm-agent/steps/01J"]


def commits(ws: Workspace, count: int) -> list[str]:
    return [ws.write_commit(ws.snapshot(), [], f"c{n}", n) for n in range(count)]


@pytest.mark.parametrize("ref", REFS)
def test_a_ref_moves_only_from_where_it_is_expected(ws: Workspace, ref: str) -> None:
    a, b, c = commits(ws, 3)
    ws.move_ref(ref, a, None)
    ws.move_ref(ref, a, None)  # again, as recovery does
    with pytest.raises(RefConflict):
        ws.move_ref(ref, b, None)
    with pytest.raises(RefConflict):
        ws.move_ref(ref, b, c)
    ws.move_ref(ref, b, a)
    ws.move_ref(ref, b, a)
    assert ws.read_ref(ref) == b
    assert git(ws.path, "rev-parse", ref).strip() == b
    with pytest.raises(RefConflict):
        ws.move_ref(ref, c, a)
    assert ws.read_ref(ref) == b


@pytest.mark.parametrize("ref", REFS)
def test_packed_refs_are_seen(ws: Workspace, ref: str) -> None:
    a, b, c = commits(ws, 3)
    ws.move_ref(ref, a, None)
    git(ws.path, "pack-refs", "--all", "--prune")
    assert not (ws.path / ".git" / ref).exists()
    assert ws.read_ref(ref) == a
    with pytest.raises(RefConflict):
        ws.move_ref(ref, b, None)
    ws.move_ref(ref, b, a)
    assert git(ws.path, "rev-parse", ref).strip() == b
    git(ws.path, "update-ref", ref, c)
    git(ws.path, "pack-refs", "--all", "--prune")
    ws.move_ref(ref, c, b)
    assert ws.read_ref(ref) == c


@pytest.mark.parametrize("ref", REFS)
def test_another_programs_lock_is_respected(ws: Workspace, ref: str) -> None:
    a, b = commits(ws, 2)
    ws.move_ref(ref, a, None)
    lock = ws.path / ".git" / f"{ref}.lock"
    lock.touch()
    with pytest.raises(WorkspaceError) as caught:
        ws.move_ref(ref, b, a)
    assert caught.value.kind == "locked"
    assert ws.read_ref(ref) == a
    assert f"{ref}.lock" in ws.clear_stale_locks()
    ws.move_ref(ref, b, a)
    assert ws.read_ref(ref) == b


def test_names_that_exclude_each_other(ws: Workspace) -> None:
    a, b = commits(ws, 2)
    ws.move_ref("refs/rlm-agent/steps/x", a, None)
    for packed in (False, True):
        if packed:
            git(ws.path, "pack-refs", "--all", "--prune")
        for name in ("refs/rlm-agent/steps/x/y", "refs/rlm-agent/steps"):
            with pytest.raises(WorkspaceError):
                ws.move_ref(name, b, None)
    assert_sound(ws)


@pytest.mark.parametrize(
    "ref", ["refs/../x", "main", "refs/heads/a b", "refs/heads/x.lock", "refs/heads/a\nupdate", "refs/heads/"]
)
def test_a_bad_name_never_reaches_git(ws: Workspace, ref: str) -> None:
    with pytest.raises(WorkspaceError) as caught:
        ws.move_ref(ref, "0" * 40, None)
    assert caught.value.kind == "usage"


def test_objects_are_gits_own(ws: Workspace) -> None:
    store = ws.store
    blob = store.write_blob(b"hello\n")
    tree = store.write_tree({b"b": Entry(0o100644, blob), b"b.txt": Entry(0o100755, blob), b"a": Entry(0o120000, blob)})
    above = store.write_tree(
        {
            b"x": Entry(0o40000, tree),
            b"x.y": Entry(0o100644, blob),
            b"e": Entry(0o40000, store.write_tree({})),
        }
    )
    assert store.read_object(blob) == ("blob", b"hello\n")  # readable before it is durable
    store.barrier()
    assert git(ws.path, "hash-object", "-t", "blob", "/dev/null").strip() != blob
    assert git(ws.path, "cat-file", "blob", blob) == "hello\n"
    assert list(store.read_tree(above)) == [b"e", b"x.y", b"x"]
    assert store.read_tree(EMPTY_TREE) == {}
    with pytest.raises(WorkspaceError, match="no object"):
        store.read_object("1" * 40)
    assert_sound(ws)


def test_a_dead_reader_is_replaced(ws: Workspace) -> None:
    (ws.path / "a").write_text("1")
    commit = milestone(ws, "one")
    ws.store.read_object(commit)
    process = ws.store._reader._contents._process
    assert process is not None
    process.kill()
    process.wait()
    assert ws.store.read_object(commit)[0] == "commit"


def test_packed_objects_are_not_written_again(ws: Workspace) -> None:
    (ws.path / "a").write_text("1")
    milestone(ws, "one")
    git(ws.path, "gc", "-q")
    git(ws.path, "prune", "--expire=now")
    assert git(ws.path, "count-objects").startswith("0 ")
    with Workspace.open(ws.path) as again:
        tree = again.snapshot()
        assert again.file_at(tree, "a") == b"1"
    # Only the root's tree without `.GCC/branches`, and that of `.GCC`, are in no commit.
    assert git(ws.path, "count-objects").startswith("2 ")


def test_an_empty_object_left_by_a_power_cut_is_replaced(ws: Workspace) -> None:
    blob = ws.store.write_blob(b"precious")
    ws.store.barrier()
    path = ws.path / ".git" / "objects" / blob[:2] / blob[2:]
    path.chmod(0o644)
    path.write_bytes(b"")
    again = GitStore(ws.path)
    assert again.write_blob(b"precious") == blob
    again.barrier()
    assert again.read_object(blob) == ("blob", b"precious")
    again.close()


KILLED = """
import os, signal, sys
from pathlib import Path
from workspaces.workspace import Workspace
seen = 0
def boundary(name):
    global seen
    if name == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
ws = Workspace.open(Path(sys.argv[1]), boundary)
for n in range(30):
    (ws.path / f"killed{n}").write_text(f"content {n}")
head = ws.head()
commit = ws.write_commit(ws.full_tree(ws.snapshot()), [head.sha], "killed", 5)
ws.move_ref("refs/heads/main", commit, head.sha)
"""


@pytest.mark.parametrize("point", ["objects.written", "objects.durable", "ref.moved"])
def test_after_kill_9_the_next_commit_works(ws: Workspace, point: str) -> None:
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", KILLED, str(ws.path), point], env=env)
    assert done.returncode == -9
    for name in ("index.lock", "HEAD.lock", "refs/heads/main.lock"):
        (ws.path / ".git" / name).touch()
    with Workspace.open(ws.path) as again:
        removed = again.clear_stale_locks()
        assert {"index.lock", "HEAD.lock", "refs/heads/main.lock"} <= set(removed)
        assert any("tmp_obj_" in name for name in removed) == (point == "objects.written")
        milestone(again, "after")
        assert git(ws.path, "status", "--porcelain") == ""
        assert git(ws.path, "show", "HEAD:killed7") == "content 7"
        assert_sound(again)
