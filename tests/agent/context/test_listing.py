"""Documents are made when they are looked at, the same one every time, from any shape of a manifest."""

from __future__ import annotations

import pickle
from pathlib import Path

import msgspec
import pytest

from agent.context import Context, open_context
from agent.context.manifest import ContextSource, Manifest, build_manifest


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text("x" * number)
    (tmp_path / "z.bin").write_bytes(bytes(range(256)))
    return build_manifest([ContextSource(str(tmp_path))])


def shapes(manifest: Manifest) -> list[Context]:
    wire = msgspec.msgpack.decode(msgspec.msgpack.encode(manifest.columns()))
    return [open_context(manifest), open_context(msgspec.to_builtins(manifest)), open_context(wire)]


def test_records_mappings_and_columns_open_as_the_same(manifest: Manifest) -> None:
    for context in shapes(manifest):
        assert context.names() == [doc.name for doc in context.docs] == [entry.name for entry in manifest.docs]
        assert [doc.listed[1:] for doc in context] == [(d.size, d.inode, d.mtime_ns) for d in manifest.docs]
        assert [doc.kind for doc in context] == ["text"] * 5 + ["binary"]
        assert context.size == manifest.size == 266
        assert [doc.text for doc in context[1:3]] == ["x", "xx"]


def test_a_document_is_made_once(manifest: Manifest) -> None:
    for context in shapes(manifest):
        doc = context["3.txt"]
        assert doc is context[3] is context[-3] is list(context)[3] is context.docs[3] is context[2:][1]
        assert pickle.loads(pickle.dumps(context))["3.txt"] == doc
        with pytest.raises(IndexError):
            context[6]


def test_a_manifest_of_nothing_opens() -> None:
    for context in shapes(Manifest(())):
        assert (len(context), context.size, context.names(), list(context.search("x"))) == (0, 0, [], [])
