"""Which files become documents, in which order and under which names."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from agent.context import open_context
from agent.context.manifest import ContextError, ContextSource, Manifest, build_manifest, check_refs


def plant(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def names(*sources: ContextSource) -> list[str]:
    return [doc.name for doc in build_manifest(sources).docs]


def test_globs_choose_and_order_is_by_name(tmp_path: Path) -> None:
    plant(tmp_path, "b.py", "a.txt", "pkg/c.py", "pkg/deep/d.py", "site-packages/e.py", "x/__pycache__/f.py", "B.py")
    source = ContextSource(str(tmp_path), ("**/*.py",), ("**/site-packages/**", "**/__pycache__/**"))
    assert names(source) == ["B.py", "b.py", "pkg/c.py", "pkg/deep/d.py"]
    assert names(ContextSource(str(tmp_path), ("*.py",))) == ["B.py", "b.py"]
    assert names(ContextSource(str(tmp_path), ("pkg/[!c].py", "?.txt"))) == ["a.txt"]


def test_files_globs_and_several_sources(tmp_path: Path) -> None:
    plant(tmp_path, "one/a.md", "two/a.md", "two/b.md", "two/c.txt")
    assert names(ContextSource(str(tmp_path / "one/a.md"))) == ["a.md"]
    assert names(ContextSource(str(tmp_path / "two/*.md"))) == ["a.md", "b.md"]
    both = names(ContextSource(str(tmp_path / "one")), ContextSource(str(tmp_path / "two")))
    assert both == ["one/a.md", "two/a.md", "two/b.md", "two/c.txt"]
    assert names(ContextSource(str(tmp_path / "one")), ContextSource(str(tmp_path / "one"))) == ["one/a.md"]
    files = names(ContextSource(str(tmp_path / "one/a.md")), ContextSource(str(tmp_path / "two/a.md")))
    assert files == ["a.md", "a.md~2"]


def test_links_that_lead_out_are_refused_and_named(tmp_path: Path) -> None:
    root = plant(tmp_path / "in", "a.txt", "sub/b.txt")
    (tmp_path / "secret").write_text("key")
    (root / "leak").symlink_to(tmp_path / "secret")
    (root / "up").symlink_to(tmp_path)
    (root / "again").symlink_to(root / "a.txt")
    (root / "loop").symlink_to(root / "sub")
    (root / "gone").symlink_to(root / "nowhere")
    os.mkfifo(root / "pipe")
    manifest = build_manifest([ContextSource(str(root))])
    assert [doc.name for doc in manifest.docs] == ["a.txt", "sub/b.txt"]
    assert {Path(refused.path).name for refused in manifest.refused} == {"leak", "up", "gone", "pipe"}


def test_binary_files_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7 text")
    (tmp_path / "b.bin").write_bytes(bytes(range(256)))
    (tmp_path / "c.txt").write_bytes("Größe\r\n\tx".encode())
    (tmp_path / "d.log").write_bytes(b"a long line of a log with one stray NUL \x00 in it, and more text")
    (tmp_path / "e").write_bytes(b"")
    manifest = build_manifest([ContextSource(str(tmp_path))])
    assert {doc.name: doc.kind for doc in manifest.docs} == {
        "a.pdf": "pdf", "b.bin": "binary", "c.txt": "text", "d.log": "text", "e": "text",
    }  # fmt: skip


def test_what_does_not_exist_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ContextError, match="nowhere"):
        build_manifest([ContextSource(str(tmp_path / "nowhere"))])
    with pytest.raises(ContextError, match=r"\*\.md"):
        build_manifest([ContextSource(str(tmp_path / "*.md"))])
    assert build_manifest([ContextSource(str(tmp_path))]).docs == ()


def test_it_travels_as_msgpack_and_as_plain_mappings(tmp_path: Path) -> None:
    manifest = build_manifest([ContextSource(str(plant(tmp_path, "a", "b")))])
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(manifest), type=Manifest)
    assert again == manifest
    assert manifest.size == 2
    plain = open_context(msgspec.to_builtins(manifest))
    assert [doc.text for doc in plain] == [doc.text for doc in open_context(manifest)] == ["a", "b"]


def test_references_outside_the_material_are_refused(tmp_path: Path) -> None:
    manifest = build_manifest([ContextSource(str(plant(tmp_path, "a.txt")))])
    path = manifest.docs[0].path
    check_refs(manifest, [(path, 0, 5), (path, 2, 2)])
    for wrong in [(path, 0, 6), (path, -1, 2), (path, 3, 2), ("/etc/passwd", 0, 1)]:
        with pytest.raises(ContextError):
            check_refs(manifest, [wrong])
