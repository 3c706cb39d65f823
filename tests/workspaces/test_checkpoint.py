"""Snapshots: what is in them, what is not, and that no change is missed."""

from __future__ import annotations

import dataclasses
import os
import socket
import time
from pathlib import Path

import pytest

from tests.workspaces.gits import assert_sound, git, milestone
from workspaces.checkpoint import signature_of
from workspaces.workspace import Workspace


def names(ws: Workspace, tree: str) -> set[str]:
    listed = git(ws.path, "ls-tree", "-r", "-z", "--name-only", tree).split("\0")
    return {name for name in listed if name and not name.startswith(".GCC/")}


def test_links_modes_and_odd_names(ws: Workspace) -> None:
    raw = os.fsencode(ws.path)
    (ws.path / "run").write_text("#!/bin/sh\n")
    (ws.path / "run").chmod(0o755)
    (ws.path / "link").symlink_to("../outside")
    (ws.path / "to-folder").symlink_to("/")
    for name in (b"new\nline", b"\xff\xfe", b":(glob)x", b'quo"te', b"-dash", b"sp ace", b"*"):
        with open(os.path.join(raw, name), "wb") as file:
            file.write(name)
    tree = ws.snapshot()
    listed = git(ws.path, "ls-tree", "-z", tree)
    modes = {row.split("\t")[1]: row.split()[0] for row in listed.split("\0") if row}
    assert modes["run"] == "100755"
    assert modes["link"] == modes["to-folder"] == "120000"
    assert {"new\nline", "\udcff\udcfe", ":(glob)x", 'quo"te', "-dash", "sp ace", "*"} <= modes.keys()
    milestone(ws, "odd")
    assert git(ws.path, "status", "--porcelain") == ""
    assert_sound(ws)


def test_secrets_oversized_and_special_files_are_left_out_and_named(tmp_path: Path) -> None:
    Workspace.create(tmp_path / "ws", "g", "n").close()
    with Workspace.open(tmp_path / "ws", max_bytes=1000) as ws:
        for name in (".env", "server.pem", "id_rsa", "x.key", ".env.example", "id_rsa.pub"):
            (ws.path / name).write_text("s")
        (ws.path / "big").write_bytes(b"x" * 1001)
        (ws.path / "sub").mkdir()
        (ws.path / "sub" / "big").write_bytes(b"x" * 2000)
        os.mkfifo(ws.path / "pipe")
        with socket.socket(socket.AF_UNIX) as server:
            here = os.getcwd()
            os.chdir(ws.path)
            server.bind("sock")
            os.chdir(here)
        for _ in range(2):
            tree = ws.snapshot()
            assert names(ws, tree) == {".env.example", "id_rsa.pub"}
            assert {(s.path, s.reason) for s in ws.skipped} == {
                (".env", "secret"),
                ("server.pem", "secret"),
                ("id_rsa", "secret"),
                ("x.key", "secret"),
                ("big", "oversized"),
                ("sub/big", "oversized"),
                ("pipe", "special"),
                ("sock", "special"),
            }
        (ws.path / "big").write_bytes(b"small now")
        assert "big" in names(ws, ws.snapshot())


def test_ignore_rules_nested_negated_and_changed(ws: Workspace) -> None:
    (ws.path / ".gitignore").write_text("*.tmp\n/build/\n")
    for folder in ("build", "src/gen", "src/deep"):
        (ws.path / folder).mkdir(parents=True)
    (ws.path / "src" / ".gitignore").write_text("gen/*\n!gen/keep\n")
    for name in ("a.tmp", "build/x", "src/gen/a", "src/gen/keep", "src/deep/b.tmp", "src/c"):
        (ws.path / name).write_text("x")
    rules = {".gitignore", "src/.gitignore"}
    assert names(ws, ws.snapshot()) == rules | {"src/gen/keep", "src/c"}
    expected = set(git(ws.path, "ls-files", "-oc", "--exclude-standard").split())
    assert names(ws, ws.snapshot()) == {n for n in expected if not n.startswith(".GCC/")}
    (ws.path / "src" / ".gitignore").write_text("c\n")
    assert names(ws, ws.snapshot()) == rules | {"src/gen/a", "src/gen/keep"}
    (ws.path / "src" / ".gitignore").unlink()
    (ws.path / ".gitignore").write_text("")
    assert names(ws, ws.snapshot()) == {
        ".gitignore",
        "a.tmp",
        "build/x",
        "src/gen/a",
        "src/gen/keep",
        "src/deep/b.tmp",
        "src/c",
    }


def test_the_tree_does_not_depend_on_what_was_asked_before(ws: Workspace) -> None:
    (ws.path / "notes.log").write_text("x")
    (ws.path / "kept.log").write_text("x")
    milestone(ws, "tracked")
    (ws.path / ".gitignore").write_text("*.log\n")
    (ws.path / "new.log").write_text("x")
    warm = ws.snapshot()
    with Workspace.open(ws.path) as again:
        assert again.snapshot() == warm
    assert names(ws, warm) == {".gitignore", "notes.log", "kept.log"}  # what git tracks stays


def test_an_oversized_tracked_file_stays_as_git_has_it(tmp_path: Path) -> None:
    Workspace.create(tmp_path / "ws", "g", "n").close()
    with Workspace.open(tmp_path / "ws", max_bytes=1000) as ws:
        (ws.path / "table").write_text("small")
        milestone(ws, "one")
        (ws.path / "table").write_bytes(b"x" * 5000)
        tree = ws.snapshot()
        assert git(ws.path, "show", f"{tree}:table") == "small"
        ws.restore(tree, "r")
        assert (ws.path / "table").stat().st_size == 5000


def test_a_rewrite_of_the_same_size_in_the_same_tick_is_noticed(ws: Workspace) -> None:
    path = ws.path / "racy"
    for n in range(20):
        path.write_text(f"{n:04d}")
        os.utime(path, ns=(1_000_000_000, 1_000_000_000))
        first = ws.snapshot(durable=False)
        with path.open("r+") as file:
            file.write(f"{n + 5000:04d}")
        os.utime(path, ns=(1_000_000_000, 1_000_000_000))
        second = ws.snapshot(durable=False)
        assert second != first
        assert ws.file_at(second, "racy") == f"{n + 5000:04d}".encode()


def test_a_clock_too_coarse_to_tell_a_rewrite_is_not_trusted(ws: Workspace) -> None:
    # New kernels give each change a time of its own; older ones and other file systems do not. So put into the scanner
    # what it would have seen there: the rewritten file's times, and the hash of what was in it before.
    path = ws.path / "racy"
    path.write_text("before")
    first = ws.snapshot(durable=False)
    seen = ws._scanner._top.files
    path.write_text("after!")
    seen["racy"] = dataclasses.replace(seen["racy"], signature=signature_of(path.lstat()))
    second = ws.snapshot(durable=False)
    assert second != first
    assert ws.file_at(second, "racy") == b"after!"


def test_nested_repositories_and_links_to_folders_are_not_entered(ws: Workspace, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "private").write_text("p")
    (ws.path / "way-out").symlink_to(outside)
    git(ws.path, "init", "-q", "vendored")
    (ws.path / "vendored" / "code.py").write_text("x")
    (ws.path / "odd").mkdir()
    (ws.path / "odd" / ".GIT").mkdir()
    (ws.path / "odd" / ".GIT" / "config").write_text("x")
    tree = ws.snapshot()
    assert names(ws, tree) == {"way-out", "vendored/code.py"}
    milestone(ws, "nested")
    assert_sound(ws)


def test_empty_folders_come_back(ws: Workspace) -> None:
    (ws.path / "out" / "deep").mkdir(parents=True)
    tree = ws.snapshot()
    (ws.path / "out" / "deep" / "x").write_text("x")
    ws.restore(tree, "a")
    assert (ws.path / "out" / "deep").is_dir()
    assert list((ws.path / "out" / "deep").iterdir()) == []
    (ws.path / "out" / "deep").rmdir()
    (ws.path / "out").rmdir()
    ws.restore(tree, "b")
    assert (ws.path / "out" / "deep").is_dir()
    milestone(ws, "empty")
    assert git(ws.path, "status", "--porcelain") == ""
    git(ws.path, "gc", "-q")
    (ws.path / "p").write_text("by hand")
    git(ws.path, "add", "p")
    git(ws.path, "commit", "-qm", "a person's")
    assert_sound(ws)


def test_a_thousand_files_and_one_change(ws: Workspace) -> None:
    for n in range(1000):
        path = ws.path / f"d{n // 100}" / f"f{n}"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{n}")
    started = time.perf_counter()
    first = ws.snapshot()
    made = time.perf_counter()
    time.sleep(0.05)
    ws.snapshot()
    before = git(ws.path, "count-objects").split()[0]
    (ws.path / "d3" / "f333").write_text("changed")
    again = time.perf_counter()
    second = ws.snapshot()
    ended = time.perf_counter()
    print(f"first snapshot {made - started:.3f} s, one change {ended - again:.4f} s")
    assert [(c.status, c.path) for c in ws.changes(first, second)] == [("M", "d3/f333")]
    assert int(git(ws.path, "count-objects").split()[0]) - int(before) == 3  # the blob, its folder, the root
    assert_sound(ws)


@pytest.mark.parametrize("depth", [150, 320])
def test_deep_folders_do_not_break_a_snapshot(ws: Workspace, depth: int) -> None:
    path = ws.path
    for _ in range(depth):
        path = path / "d"
    path.mkdir(parents=True)
    (path / "f").write_text("x")
    tree = ws.snapshot()
    assert (len(names(ws, tree)) == 1) == (depth < 200)
    assert any(s.reason == "deep" for s in ws.skipped) == (depth > 200)
