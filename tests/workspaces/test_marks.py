"""Scans by the kernel's marks, against fresh full ones: whatever happens to the files, the trees are equal."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from workspaces import checkpoint
from workspaces.checkpoint import Scope, TreeScanner
from workspaces.rules import IgnoreRules, Tracked
from workspaces.workspace import Workspace


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace.create(tmp_path / "w", "A goal.", "t", when=1) as made:
        yield made


def fresh(ws: Workspace) -> str:
    """Scan without marks and without memory."""
    rules = IgnoreRules(ws.path, ws.store.git_dir)
    try:
        return TreeScanner(ws.path, ws.store, Scope(rules, Tracked(ws.path, ws.store.git_dir))).scan()
    finally:
        rules.close()


def agree(ws: Workspace) -> None:
    assert ws.snapshot(full=False) == fresh(ws)


NAMES = ["a", "b", "c.txt", "d d", "é", "sub", "x.log", ".hidden", "deep"]


def act(root: Path, chance: random.Random) -> str:
    """Do one random thing to the files, and say what."""
    folders = [
        root,
        *(
            p
            for p in root.rglob("*")
            if p.is_dir() and not p.is_symlink() and ".git" not in p.parts and ".rlm-agent" not in p.parts
        ),
    ]
    folders = [p for p in folders if ".GCC" not in p.parts]
    there = [p for f in folders for p in f.iterdir() if p.name not in (".git", ".rlm-agent", ".GCC", ".gitignore")]
    target, some = chance.choice(folders) / chance.choice(NAMES), chance.choice(there) if there else None
    kind = chance.choice(
        ["write", "write", "append", "mkdir", "remove", "move", "chmod", "link", "replace", "touch", "swap"]
    )
    try:
        if kind == "write":
            target.write_text(str(chance.random()))
        elif kind == "append" and some and some.is_file():
            with some.open("a") as file:
                file.write(str(chance.random()))
        elif kind == "mkdir":
            target.mkdir()
        elif kind == "remove" and some:
            shutil.rmtree(some) if some.is_dir() and not some.is_symlink() else some.unlink()
        elif kind == "move" and some:
            some.rename(target)
        elif kind == "chmod" and some and some.is_file():
            some.chmod(chance.choice([0o644, 0o755]))
        elif kind == "link":
            target.symlink_to(chance.choice(NAMES))
        elif kind == "replace":
            temporary = root / "b.new"
            temporary.write_text(str(chance.random()))
            temporary.replace(target)
        elif kind == "touch" and some and some.exists():
            os.utime(some)
        elif kind == "swap" and some and some.is_dir():
            other = root / "aside"
            some.rename(other)
            some.mkdir()
            (some / "new").write_text("new")
            other.rename(some / "old")
    except OSError as error:
        return f"{kind} {error}"
    return f"{kind} {some} {target}"


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_the_trees_are_equal(ws: Workspace, seed: int) -> None:
    chance = random.Random(seed)
    (ws.path / ".gitignore").write_text("*.log\n")
    agree(ws)
    done: list[str] = []
    for _ in range(60):
        done = [act(ws.path, chance) for _ in range(chance.choice([1, 1, 2, 5, 12]))]
        assert ws.snapshot(full=False) == fresh(ws), done


def test_rules_that_change_are_heeded(ws: Workspace) -> None:
    (ws.path / "a.log").write_text("log")
    (ws.path / "sub").mkdir()
    (ws.path / "sub/b.log").write_text("log")
    agree(ws)
    for text in ("*.log\n", "sub/\n", ""):
        (ws.path / ".gitignore").write_text(text)
        agree(ws)
    (ws.path / "sub/.gitignore").write_text("b.log\n")
    agree(ws)


def test_what_git_tracks_from_now_on_is_held(ws: Workspace) -> None:
    (ws.path / ".gitignore").write_text("kept.log\n")
    (ws.path / "kept.log").write_text("x")
    agree(ws)
    subprocess.run(["git", "-C", str(ws.path), "add", "-f", "kept.log"], check=True)
    agree(ws)


def test_a_sandboxed_process_leaves_marks_too(ws: Workspace) -> None:
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        pytest.skip("no bubblewrap")
    agree(ws)
    command = [bwrap, "--ro-bind", "/", "/", "--bind", str(ws.path), str(ws.path), "--dev", "/dev", "sh", "-c"]
    done = subprocess.run(
        [*command, f"echo inside > {ws.path}/inside.txt; mkdir {ws.path}/d; echo x > {ws.path}/d/x"], check=False
    )
    if done.returncode:
        pytest.skip("bubblewrap does not work here")
    agree(ws)
    assert ws.file_at(ws.snapshot(), "d/x") == b"x\n"


def test_more_changes_than_the_kernel_notes_are_all_found(ws: Workspace) -> None:
    agree(ws)
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if most > 100_000:
        pytest.skip("the queue is too long to be filled here")
    for n in range(most // 2 + 100):
        (ws.path / f"f{n % 50}").write_text(str(n))
        os.utime(ws.path / f"f{(n + 1) % 50}") if n > 50 else None
    agree(ws)


def test_a_write_that_leaves_no_mark_is_found_by_the_next_full_look(ws: Workspace) -> None:
    (ws.path / "one").write_text("one")
    (ws.path.parent / "other").hardlink_to(ws.path / "one")
    agree(ws)
    (ws.path.parent / "other").write_text("two")
    before = ws.snapshot(full=False)
    for _ in range(checkpoint._FULL_EVERY + 1):
        after = ws.snapshot()
    assert before != after == fresh(ws)


def test_a_scanner_that_is_closed_looks_at_everything(ws: Workspace) -> None:
    agree(ws)
    ws._scanner.close()
    (ws.path / "late").write_text("late")
    agree(ws)
