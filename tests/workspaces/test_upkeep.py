"""Packing and thinning on a real repository: smaller, and nothing that is reached goes."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.workspaces.gits import git
from workspaces import upkeep
from workspaces.packs import PackIndexes
from workspaces.workspace import Workspace

REF = "refs/rlm-agent/steps/R"


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace.create(tmp_path / "w", "A goal.", "t", when=1) as made:
        yield made


def walk(ws: Workspace, count: int) -> list[str]:
    commits: list[str] = []
    for n in range(count):
        (ws.path / f"f{n % 7}").write_text(f"step {n}\n" * 50)
        made = ws.write_commit(ws.snapshot(durable=False), commits[-1:], f"step {n}\n", n + 1)
        ws.move_ref(REF, made, commits[-1] if commits else None)
        commits.append(made)
    return commits


def loose(ws: Workspace) -> int:
    return int(git(ws.path, "count-objects").split()[0])


@pytest.mark.parametrize("whole", [False, True])
def test_what_was_loose_is_packed_and_all_of_it_is_there(ws: Workspace, whole: bool) -> None:
    commits = walk(ws, 40)
    stray = ws.store.write_blob(b"nothing reaches this yet")
    ws.store.barrier()
    assert loose(ws) > 100
    ws.packing.start(whole)
    walked_on = ws.write_commit(ws.snapshot(), commits[-1:], "while it packs\n", 99)
    ws.move_ref(REF, walked_on, commits[-1])
    ws.packing.finish()
    assert loose(ws) < 10 and git(ws.path, "fsck", "--strict", "--no-dangling") == ""
    assert git(ws.path, "rev-list", "--count", REF).strip() == "41"
    assert ws.store.exists(stray), "what nothing reaches may be what a crash is redone from"


def test_a_packing_that_fails_says_so_at_the_next(ws: Workspace) -> None:
    walk(ws, 3)
    pack = ws.path / ".git/objects/pack"
    pack.rmdir()
    pack.write_text("no folder")
    ws.packing.start()
    with pytest.raises(Exception, match="repack"):
        ws.packing.finish()
    pack.unlink()
    pack.mkdir()
    ws.packing.start()
    ws.packing.finish()


def test_a_killed_packing_leaves_nothing_behind(ws: Workspace) -> None:
    walk(ws, 40)
    ws.packing.start()
    process = ws.packing._process
    assert process is not None
    subprocess.run(["pkill", "-9", "-s", str(process.pid)], check=False)
    process.wait()
    (ws.path / ".git/objects/pack/tmp_pack_left").write_bytes(b"x")
    assert "objects/pack/tmp_pack_left" in ws.clear_stale_locks()
    assert git(ws.path, "fsck", "--strict", "--no-dangling") == ""


def test_a_thinned_chain_has_the_same_checkpoints_with_fewer_before_them(ws: Workspace) -> None:
    commits = walk(ws, 30)
    kept = [c for n, c in enumerate(commits) if n in (0, 1, 2, 3) or n % 5 == 0 or n > 25]
    made = upkeep.rewrite_chain(ws.store, kept)
    assert made[:4] == kept[:4], "what comes before the first gap is as it was"
    ws.move_ref(REF, made[-1], commits[-1])
    told = git(ws.path, "log", "--format=%s %T %ct", REF)
    assert told == "".join(git(ws.path, "log", "-1", "--format=%s %T %ct", c) for c in reversed(kept))
    assert upkeep.rewrite_chain(ws.store, made) == made


@pytest.mark.parametrize(
    ("step", "newest", "kept"),
    [
        (5, 900, True),
        (4001, 5000, True),
        (3999, 5000, False),
        (3990, 5000, True),
        (8990, 20_000, False),
        (8900, 20_000, True),
    ],
)
def test_old_checkpoints_are_kept_the_more_rarely_the_older_they_are(step: int, newest: int, kept: bool) -> None:
    assert upkeep.is_kept(step, newest) is kept


def test_what_is_packed_is_not_written_again(ws: Workspace) -> None:
    walk(ws, 40)
    names = git(ws.path, "rev-list", "--objects", "--all", "--no-object-names").split()
    ws.packing.start(whole=True)
    ws.packing.finish()
    packs = PackIndexes(str(ws.path / ".git/objects"))
    assert all(packs.has(name) for name in names)
    assert not any(packs.has(f"{n:02x}" + "0" * 38) for n in range(256))
    packs.close()
    before = loose(ws)
    with Workspace.open(ws.path) as again:
        again.snapshot()
    assert loose(ws) == before


def test_writing_goes_on_while_packings_take_emptied_folders_away(ws: Workspace) -> None:
    """A packing removes the folders of loose objects that it has emptied, also between a look and a write."""
    objects, ended = ws.path / ".git/objects", threading.Event()

    def take_away() -> None:
        while not ended.is_set():
            for number in range(256):
                with suppress(OSError):
                    (objects / f"{number:02x}").rmdir()

    thread = threading.Thread(target=take_away)
    thread.start()
    try:
        names = []
        for n in range(400):
            names.append(ws.store.write_blob(f"object {n}".encode()))
            if n % 5 == 0:
                ws.store.barrier()
        ws.store.barrier()
    finally:
        ended.set()
        thread.join()
    assert all(ws.store.exists(name) for name in names)
    commits = walk(ws, 60)
    for _ in range(3):
        ws.packing.start(whole=True)
        while ws.packing.on:
            (ws.path / "busy").write_text(str(len(commits)))
            commits.append(ws.write_commit(ws.snapshot(durable=False), commits[-1:], f"more {len(commits)}\n", 99))
            ws.move_ref(REF, commits[-1], commits[-2])
        ws.packing.finish()
    assert git(ws.path, "rev-list", "--count", REF).strip() == str(len(commits))
    assert git(ws.path, "fsck", "--strict", "--no-dangling") == ""
