"""Restoring: the working files become the tree, and every byte that was there can be had back."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.workspaces.gits import assert_sound, git, milestone
from workspaces.workspace import Workspace


def files(path: Path) -> dict[str, bytes]:
    found = {}
    for folder, inner, names in os.walk(path):
        inner[:] = [name for name in inner if name not in (".git", ".rlm-agent", ".GCC")]
        for name in [*names, *(n for n in inner if os.path.islink(os.path.join(folder, n)))]:
            file = Path(folder, name)
            link = file.is_symlink()
            found[str(file.relative_to(path))] = b"-> " + os.fsencode(os.readlink(file)) if link else file.read_bytes()
    return found


def test_nothing_differs_nothing_happens(ws: Workspace) -> None:
    (ws.path / "a").write_text("1")
    tree = ws.snapshot()
    assert ws.restore(tree, "r").changed == ()
    assert ws.restore(tree, "r").rescue is None
    assert ws.read_ref("refs/rlm-agent/rescue/r") is None


def test_restore_and_rescue_give_back_every_byte(ws: Workspace) -> None:
    (ws.path / "sub" / "deep").mkdir(parents=True)
    (ws.path / "sub" / "deep" / "a").write_text("a1")
    (ws.path / "same").write_text("same")
    (ws.path / "run").write_text("#!/bin/sh")
    (ws.path / "run").chmod(0o755)
    (ws.path / "folder-then-file").mkdir()
    (ws.path / "folder-then-file" / "x").write_text("x")
    (ws.path / "file-then-folder").write_text("f")
    (ws.path / "link").symlink_to("same")
    before = files(ws.path)
    tree = ws.snapshot()
    untouched = (ws.path / "same").stat()

    (ws.path / "sub" / "deep" / "a").unlink()
    (ws.path / "sub" / "deep").rmdir()
    (ws.path / "sub").rmdir()
    (ws.path / "run").chmod(0o644)
    (ws.path / "folder-then-file" / "x").unlink()
    (ws.path / "folder-then-file").rmdir()
    (ws.path / "folder-then-file").write_bytes(b"\x00\xffnow a file")
    (ws.path / "file-then-folder").unlink()
    (ws.path / "file-then-folder" / "in" / "it").mkdir(parents=True)
    (ws.path / "file-then-folder" / "in" / "it" / "y").write_text("y")
    (ws.path / "link").unlink()
    (ws.path / "link").write_text("no link now")
    (ws.path / "extra" / "e").mkdir(parents=True)
    (ws.path / "extra" / "e" / "person.md").write_text("a person's")
    after = files(ws.path)

    done = ws.restore(tree, "01RESCUE")
    assert files(ws.path) == before
    assert not (ws.path / "extra").exists()
    assert (ws.path / "run").stat().st_mode & 0o100
    assert (ws.path / "same").stat().st_mtime_ns == untouched.st_mtime_ns
    assert (ws.path / "same").stat().st_ino == untouched.st_ino
    assert "same" not in done.changed
    assert done.rescue == "refs/rlm-agent/rescue/01RESCUE"
    assert ws.snapshot() == tree

    rescued = ws.read_ref(done.rescue)
    assert rescued is not None
    ws.restore(rescued, "02BACK")
    assert files(ws.path) == after
    assert_sound(ws)


def test_ignored_oversized_secret_and_branch_files_are_left_alone(tmp_path: Path) -> None:
    Workspace.create(tmp_path / "ws", "g", "n").close()
    with Workspace.open(tmp_path / "ws", max_bytes=1000) as ws:
        (ws.path / ".gitignore").write_text("cache/\n")
        (ws.path / "work").mkdir()
        (ws.path / "work" / "a").write_text("1")
        tree = ws.snapshot()
        (ws.path / "cache").mkdir()
        (ws.path / "cache" / "c").write_text("c")
        (ws.path / "work" / "big").write_bytes(b"x" * 5000)
        (ws.path / "work" / ".env").write_text("KEY=1")
        log = ws.path / ".GCC" / "branches" / "main" / "log.md"
        log.write_text("more\n")
        (ws.path / "work" / "a").write_text("2")
        ws.restore(tree, "r")
        assert (ws.path / "work" / "a").read_text() == "1"
        assert (ws.path / "cache" / "c").read_text() == "c"
        assert (ws.path / "work" / "big").stat().st_size == 5000
        assert (ws.path / "work" / ".env").read_text() == "KEY=1"
        assert log.read_text() == "more\n"
        ws.restore(milestone(ws, "a full tree"), "r2")
        assert log.read_text() == "more\n"


def test_a_left_out_file_that_has_to_go_is_rescued_first(ws: Workspace) -> None:
    (ws.path / "data").write_text("wanted")
    tree = ws.snapshot()
    (ws.path / ".gitignore").write_text("data\n")
    (ws.path / "data").write_text("ignored now, and precious")
    done = ws.restore(tree, "r")
    assert (ws.path / "data").read_text() == "wanted"
    assert done.rescue is not None
    assert git(ws.path, "show", f"{done.rescue}:data") == "ignored now, and precious"


def test_what_stands_in_the_way_is_moved_aside(ws: Workspace) -> None:
    (ws.path / "a").write_text("file")
    (ws.path / "b").mkdir()
    (ws.path / "b" / "x").write_text("x")
    tree = ws.snapshot()
    (ws.path / "a").unlink()
    (ws.path / "a").mkdir()
    (ws.path / "a" / ".env").write_text("KEY")
    (ws.path / "b" / "x").unlink()
    (ws.path / "b").rmdir()
    os.mkfifo(ws.path / "b")
    ws.restore(tree, "r")
    assert (ws.path / "a").read_text() == "file"
    assert (ws.path / "b" / "x").read_text() == "x"
    aside = ws.path / ".rlm-agent" / "rescue" / "r"
    assert (aside / "a" / ".env").read_text() == "KEY"
    assert (aside / "b").is_fifo()


def test_a_link_in_the_place_of_a_folder_is_never_followed(ws: Workspace, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_text("outside")
    (outside / "other").write_text("outside")
    (ws.path / "sub").mkdir()
    (ws.path / "sub" / "a").write_text("inside")
    (ws.path / "hidden").mkdir()
    (ws.path / "hidden" / "a").write_text("inside")
    tree = ws.snapshot()
    for name in ("sub", "hidden"):
        (ws.path / name / "a").unlink()
        (ws.path / name).rmdir()
        (ws.path / name).symlink_to(outside)
    (ws.path / ".gitignore").write_text("hidden\n")
    ws.restore(tree, "r")
    assert {p.name: p.read_text() for p in outside.iterdir()} == {"a": "outside", "other": "outside"}
    for name in ("sub", "hidden"):
        assert not (ws.path / name).is_symlink()
        assert (ws.path / name / "a").read_text() == "inside"


def test_a_restore_that_was_cut_off_is_done_again_and_keeps_the_first_rescue(ws: Workspace) -> None:
    class Cut(Exception):
        pass

    for n in range(4):
        (ws.path / f"f{n}").write_text("old")
    tree = ws.snapshot()
    for n in range(4):
        (ws.path / f"f{n}").write_text(f"new {n}")

    def cut(name: str) -> None:
        if name == "ref.durable":
            raise Cut

    with Workspace.open(ws.path, boundary=cut) as half, pytest.raises(Cut):
        half.restore(tree, "r")
    (ws.path / "f0").write_text("old")  # as if it had got this far
    done = ws.restore(tree, "r")
    assert done.rescue is not None
    assert all((ws.path / f"f{n}").read_text() == "old" for n in range(4))
    assert git(ws.path, "show", f"{done.rescue}~1:f0") == "new 0"
    assert git(ws.path, "show", f"{done.rescue}:f3") == "new 3"
    assert_sound(ws)


def test_writers_beside_a_restore_lose_nothing(ws: Workspace) -> None:
    for n in range(60):
        (ws.path / f"f{n}").write_text("old")
    tree = ws.snapshot()
    for n in range(60):
        (ws.path / f"f{n}").write_text(f"first {n}")
    stop = threading.Event()
    written = []

    def write() -> None:
        for n in range(59, 40, -1):
            text = f"late {n} " + "x" * n
            (ws.path / f"f{n}").write_text(text)
            written.append((n, text))
            if stop.wait(0.001):
                return

    writer = threading.Thread(target=write)
    writer.start()
    ws.restore(tree, "r")
    stop.set()
    writer.join()
    history = git(ws.path, "log", "-p", "refs/rlm-agent/rescue/r")
    for n, text in written:
        assert (ws.path / f"f{n}").read_text() in (text, "old")
        if (ws.path / f"f{n}").read_text() == "old":
            assert text in history


def test_a_read_only_folder_does_not_stop_a_restore(ws: Workspace) -> None:
    (ws.path / "locked").mkdir()
    (ws.path / "locked" / "a").write_text("1")
    tree = ws.snapshot()
    (ws.path / "locked" / "a").write_text("2")
    (ws.path / "locked").chmod(0o555)
    ws.restore(tree, "r")
    assert (ws.path / "locked" / "a").read_text() == "1"
    (ws.path / "locked").chmod(0o755)
