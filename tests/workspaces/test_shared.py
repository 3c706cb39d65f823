"""Files of the run in folders where cells write: no link is followed, no pipe is waited for, nothing is deleted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from workspaces import gcc
from workspaces.shared import keep_kind, make_folder, read_text


def write(root: Path) -> None:
    record = gcc.CommitRecord(
        seq=1,
        id="C1",
        summary="s",
        purpose="p",
        previous_progress="",
        contribution="c",
        step=1,
        log_first=1,
        log_last=1,
    )
    gcc.write_branch_files(root, "main", "purpose", [record], [], {"branch": {"name": "main"}})


@pytest.mark.parametrize("linked", [".GCC", ".GCC/branches", ".GCC/branches/main"])
def test_a_folder_that_is_a_link_is_moved_aside(tmp_path: Path, linked: str) -> None:
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    (root / linked).parent.mkdir(parents=True)
    (root / linked).symlink_to(outside)
    write(root)
    assert list(outside.iterdir()) == []
    assert (root / ".GCC/branches/main/commit.md").is_file()
    assert (root / f"{linked}.aside-1").is_symlink()


@pytest.mark.parametrize("name", ["commit.md", "log.md", "metadata.yaml", "commit.md.new", "metadata.yaml.new", "log"])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_file_of_another_kind_is_moved_aside(tmp_path: Path, name: str, kind: str) -> None:
    secret, root = tmp_path / "secret", tmp_path / "root"
    secret.write_text("before")
    write(root)
    path = root / ".GCC/branches/main" / name
    path.unlink(missing_ok=True)
    {"link": lambda: path.symlink_to(secret), "pipe": lambda: os.mkfifo(path), "folder": path.mkdir}[kind]()
    write(root)
    assert secret.read_text() == "before"
    for made in ("commit.md", "log.md", "metadata.yaml"):
        assert (path.parent / made).is_file() and not (path.parent / made).is_symlink()


def test_the_roadmap_is_read_without_following_anything(tmp_path: Path) -> None:
    secret, root = tmp_path / "main.md", tmp_path / "root"
    secret.write_text("KEY")
    (root / ".GCC").mkdir(parents=True)
    main = root / gcc.MAIN
    assert gcc.read_roadmap(root) == ""
    main.symlink_to(secret)
    assert gcc.read_roadmap(root) == ""
    main.unlink()
    os.mkfifo(main)
    assert gcc.read_roadmap(root) == ""
    main.unlink()
    main.write_text("plan")
    assert gcc.read_roadmap(root) == "plan"
    (root / ".GCC").rename(root / "kept")
    (root / ".GCC").symlink_to(tmp_path)
    assert gcc.read_roadmap(root) == ""


def test_reading_stops_at_the_cap(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x" * 100)
    assert read_text(tmp_path, "a", 10) == "x" * 10


def test_nothing_that_is_in_the_way_is_lost(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / "f").write_text(f"work {number}")
        assert make_folder(tmp_path, "f").is_dir()
        (tmp_path / "f").rmdir()
        assert (tmp_path / f"f.aside-{number}").read_text() == f"work {number}"
    assert not keep_kind(tmp_path / "nothing", 0)
