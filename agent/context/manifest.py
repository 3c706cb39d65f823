"""Which documents a task may read: an ordered list of files with sizes, and nothing of their content.

A manifest is made once, by the host, from the task's `context:` entries. Its order depends on names alone, a path that
leads out of the source that named it is refused and listed as such, and binary files are marked so that nothing mistakes
them for text.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import msgspec

from agent.context.listing import columns
from agent.errors import UsageError

_MAGIC = re.compile(r"[*?\[]")
_SNIFF = 4096
_HTML = (".html", ".htm", ".xhtml")
_ODD = bytes((*range(9), *range(14, 27), *range(28, 32), 127))


class ContextError(UsageError):
    """A context entry of the task names nothing that can be read."""

    kind = "context"


class ContextSource(msgspec.Struct, frozen=True):
    """One `context:` entry: a file, a folder or a glob; `include` and `exclude` are globs relative to a folder."""

    path: str
    include: tuple[str, ...] = ("**/*",)
    exclude: tuple[str, ...] = ()


class DocEntry(msgspec.Struct, frozen=True):
    """One document: absolute `path`, `name` unique in its manifest, `size` in bytes.

    `kind` is text, binary, or a format whose text was not taken out (pdf, docx, utf-16, utf-32). A text copy has its
    `source` beside the `path` of the copy. `inode` and `mtime_ns` tell a file from one that took its place.
    """

    path: str
    name: str
    size: int
    mtime_ns: int
    kind: str = "text"
    inode: int = 0
    source: str = ""


class Refusal(msgspec.Struct, frozen=True):
    """A path that was met and left out, with the reason."""

    path: str
    reason: str


class Manifest(msgspec.Struct, frozen=True, dict=True):
    """All documents of a task, in order, and what was refused."""

    docs: tuple[DocEntry, ...]
    refused: tuple[Refusal, ...] = ()

    @cached_property
    def size(self) -> int:
        """Sum the sizes of all documents, in bytes."""
        return sum(doc.size for doc in self.docs)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Bytes of each document by its path."""
        return {doc.path: doc.size for doc in self.docs}

    def columns(self) -> dict[str, Any]:
        """Return what `open_context` takes, as columns: a third of the time and size of a mapping for each document."""
        return {"docs": columns(self.docs)._asdict()}


def build_manifest(sources: Sequence[ContextSource], cache: Path | None = None) -> Manifest:
    """List the documents of `sources`; raise `ContextError` for a source that does not exist or matches nothing.

    With a `cache` folder, PDF, DOCX, HTML and UTF-16/32 become text copies in it, as far as the extra `documents` is there.
    """
    docs: list[DocEntry] = []
    refused: list[Refusal] = []
    taken: set[str] = set()
    paths: set[str] = set()
    for source in sources:
        prefix = _label(source.path) + "/" if len(sources) > 1 else ""
        before = len(docs) + len(refused) + len(paths)
        for relative, path, root in _files(source, refused):
            entry = _entry(path, prefix + relative if root else relative, root, refused)
            if entry is None or entry.path in paths:
                continue
            paths.add(entry.path)
            entry = msgspec.structs.replace(entry, name=_unique(entry.name, taken))
            docs.append(entry)
        if len(docs) + len(refused) + len(paths) == before and not Path(source.path).is_dir():
            raise ContextError(
                f"context: {source.path}: no such file or folder", "check the path in the task's context list"
            )
    if cache is not None:
        docs = _as_text(docs, cache, refused)
    return Manifest(docs=tuple(docs), refused=tuple(refused))


def check_refs(manifest: Manifest, refs: Sequence[tuple[str, int, int]]) -> None:
    """Raise `ContextError` unless every (path, start, end) lies inside a document of `manifest`."""
    sizes = manifest.sizes
    for path, start, end in refs:
        if path not in sizes:
            raise ContextError(
                f"context: {path} is not a document of this task",
                "pass documents, slices or matches of `context`",
            )
        if not 0 <= start <= end <= sizes[path]:
            raise ContextError(
                f"context: bytes {start}-{end} lie outside {path} ({sizes[path]} bytes)",
                "slice the document again",
            )


def _files(source: ContextSource, refused: list[Refusal]) -> Iterator[tuple[str, str, str]]:
    """Yield (name, path, root); `root` is empty for a file that was named as such."""
    path = source.path
    if os.path.isdir(path):
        yield from _walk(path, source, refused)
    elif os.path.lexists(path):
        yield os.path.basename(path), path, ""
    elif _MAGIC.search(path):
        base = path[: _MAGIC.search(path).start()].rpartition("/")[0] or "."  # type: ignore[union-attr]
        for found in sorted(glob.glob(path, recursive=True)):
            name = os.path.relpath(found, base)
            if os.path.isfile(found) and not _any(source.exclude, name):
                yield name, found, base


def _walk(root: str, source: ContextSource, refused: list[Refusal]) -> Iterator[tuple[str, str, str]]:
    stack = [""]
    names: list[str] = []
    while stack:
        folder = stack.pop()
        try:
            entries = list(os.scandir(os.path.join(root, folder)))
        except OSError as error:
            refused.append(Refusal(os.path.join(root, folder), error.strerror or "unreadable"))
            continue
        for entry in entries:
            name = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                if not _any(source.exclude, name + "/\0"):  # a folder whose whole content is excluded is not entered
                    stack.append(name)
            elif _any(source.include, name) and not _any(source.exclude, name):
                names.append(name)
    for name in sorted(names):
        yield name, os.path.join(root, name), root


def _entry(path: str, name: str, root: str, refused: list[Refusal]) -> DocEntry | None:
    try:
        real = _real(path, root)
        if not real:
            refused.append(Refusal(path, "a link that leads out of its source"))
            return None
        facts = os.stat(real)
        if not stat.S_ISREG(facts.st_mode):
            if not stat.S_ISDIR(facts.st_mode):  # a link to a folder of the source: its files are listed there
                refused.append(Refusal(path, "not a regular file"))
            return None
        kind = _kind(_head(real), name)
    except OSError as error:
        refused.append(Refusal(path, error.strerror or "unreadable"))
        return None
    return DocEntry(real, name, facts.st_size, facts.st_mtime_ns, kind, facts.st_ino)


def _real(path: str, root: str) -> str:
    """Return the path without links, or an empty string when it leads out of `root`."""
    if not root:
        return os.path.realpath(path)
    folder, _, name = path.rpartition("/")
    real_root, real_folder = _folder(root), _folder(folder)
    real = os.path.realpath(path) if os.path.islink(path) else f"{real_folder}/{name}"
    return real if real.startswith(real_root.rstrip("/") + "/") else ""


@lru_cache(maxsize=1024)
def _folder(path: str) -> str:
    return os.path.realpath(path)


def _head(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _SNIFF)
    finally:
        os.close(descriptor)


def _as_text(docs: Sequence[DocEntry], cache: Path, refused: list[Refusal]) -> list[DocEntry]:
    """Put text copies in the place of the documents that are not UTF-8 text; those without readable text are refused."""
    from agent.context.convert import Unreadable, convertible, text_copies

    kinds = {doc.path: kind for doc in docs if (kind := _other(doc)) and convertible(kind)}
    copies = dict(zip(kinds, text_copies(list(kinds.items()), cache), strict=True))
    found: list[DocEntry] = []
    for doc in docs:
        copy = copies.get(doc.path)
        if isinstance(copy, Unreadable):
            refused.append(Refusal(doc.path, str(copy)))
        elif copy is None:
            found.append(doc)
        else:
            facts, place = copy.stat(), str(copy.resolve())
            found.append(DocEntry(place, doc.name, facts.st_size, facts.st_mtime_ns, "text", facts.st_ino, doc.path))
    return found


def _other(doc: DocEntry) -> str:
    """Return the format of a document whose text has to be taken out of it; empty for text and for what has none."""
    kind = "html" if doc.kind == "text" and doc.name.lower().endswith(_HTML) else doc.kind
    return "" if kind in ("text", "binary") else kind


def _kind(head: bytes, name: str) -> str:
    """Tell what a file is by its first bytes: a NUL among control bytes, or many bytes that no text has, are binary."""
    if head.startswith(b"%PDF-"):
        return "pdf"
    if head.startswith(b"PK\x03\x04"):
        return "docx" if name.lower().endswith(".docx") else "binary"
    if head.startswith((b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")):
        return "utf-32"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if head.startswith((b"\x89PNG", b"\x7fELF", b"\x1f\x8b")):
        return "binary"
    odd = len(head) - len(head.translate(None, _ODD))
    return "binary" if odd * 20 > len(head) else "text"


def _label(path: str) -> str:
    return os.path.basename(os.path.abspath(path.rstrip("/") if not _MAGIC.search(path) else path.split("*")[0]))


def _unique(name: str, taken: set[str]) -> str:
    stem, number = name, 2
    while name in taken:
        name, number = f"{stem}~{number}", number + 1
    taken.add(name)
    return name


def _any(patterns: tuple[str, ...], name: str) -> bool:
    return any(_glob(pattern).fullmatch(name) for pattern in patterns)


@lru_cache(maxsize=256)
def _glob(pattern: str) -> re.Pattern[str]:
    """Translate a glob in which `**` spans folders and `*` does not."""
    out, at = "", 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            out, at = out + "(?:.*/)?", at + 3
        elif pattern.startswith("**", at):
            out, at = out + ".*", at + 2
        elif pattern[at] == "[" and "]" in pattern[at + 2 :]:
            end = pattern.index("]", at + 2)
            body = pattern[at + 1 : end].replace("\\", "\\\\")
            out, at = out + "[" + ("^" + body[1:] if body[0] == "!" else body) + "]", end + 1
        else:
            out += {"*": "[^/]*", "?": "[^/]"}.get(pattern[at], re.escape(pattern[at]))
            at += 1
    return re.compile(out, re.DOTALL)
