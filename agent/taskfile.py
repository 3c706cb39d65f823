"""A YAML text as plain data that remembers where each value stands.

Plain scalars stay the text that was typed, so that YAML 1.1's surprises (`no`, `1_000`, `010`, `1:30`)
never happen: the field that receives the text reads it. Only below `params`, which goes to a model as it
is, are numbers and booleans made, by the rules of YAML 1.2. Every mistake found here is a `Mistake` with a
line and a column, counted from 1.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

from agent.errors import TaskError

Place = tuple[int, int]
Loc = tuple[str | int, ...]

EXAMPLE = "`rlm-agent init` writes a task that works"
MAX_BYTES = 1 << 20
MAX_NODES = 50_000
TYPED_BELOW = "params"


class Mistake(msgspec.Struct, frozen=True, order=True):
    """One thing that is wrong in a file, and where."""

    place: Place
    message: str


class Document(msgspec.Struct, frozen=True):
    """The data of a file, the places of its values and keys by location, and the mistakes of its form."""

    data: dict[str, Any]
    values: dict[Loc, Place]
    keys: dict[Loc, Place]
    mistakes: list[Mistake]

    def place(self, loc: Loc, *, of_key: bool = False) -> Place:
        """Give the line and column of `loc`, or of the nearest thing around it that stands in the file."""
        if of_key and loc in self.keys:
            return self.keys[loc]
        while loc not in self.values:
            loc = loc[:-1]
        return self.values[loc]


def read_text(path: Path) -> str:
    """Read a task file's text; raise TaskError for what is no text file of a sensible size."""
    try:
        if path.is_dir():
            raise TaskError(f"{path}: is a folder, not a task file", f"name the file in it: {path / 'task.yaml'}")
        raw = path.read_bytes() if path.stat().st_size <= MAX_BYTES else None
    except FileNotFoundError as error:
        raise TaskError(f"{path}: no such file", EXAMPLE) from error
    except OSError as error:
        raise TaskError(f"{path}: cannot be read: {error.strerror}") from error
    if raw is None:
        raise TaskError(f"{path}: larger than 1 MiB, so not a task file", "put the material under `context:`")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8-sig", "replace").split("\n")
        raise TaskError(
            f"{path}:{len(before)}:{len(before[-1]) + 1}: not UTF-8 text (byte 0x{raw[error.start]:02x})",
            "save the file as UTF-8",
        ) from error


def parse(text: str, name: str) -> Document:
    """Parse a task's YAML; raise TaskError when it is not YAML, or not one mapping."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
        raise TaskError(f"{name}:{place}: {_plainly(error)}", EXAMPLE) from error
    except yaml.reader.ReaderError as error:
        before = text[: error.position].split("\n")
        place = f"{len(before)}:{len(before[-1]) + 1}"
        what = f"a character that YAML does not allow (#x{ord(text[error.position]):04x})"
        raise TaskError(f"{name}:{place}: {what}", "delete it") from error
    except RecursionError:
        raise TaskError(f"{name}:1:1: nested too deeply for a task", EXAMPLE) from None
    if node is None:
        raise TaskError(f"{name}:1:1: the file is empty", EXAMPLE)
    if not isinstance(node, yaml.MappingNode):
        kind = "a list" if isinstance(node, yaml.SequenceNode) else "a single value"
        line, column = _place(node)
        raise TaskError(f"{name}:{line}:{column}: expected `key: value` lines at the top, found {kind}", EXAMPLE)
    document = Document({}, {}, {}, [])
    document.data.update(_Builder(document, name).build(node, ()))
    return document


class _Builder:
    """Turns YAML nodes into data, noting places and mistakes on the way."""

    def __init__(self, document: Document, name: str) -> None:
        self.document = document
        self.name = name
        self.open: set[int] = set()
        self.nodes = 0

    def build(self, node: yaml.Node, loc: Loc) -> Any:
        """Give the data of `node`; raise TaskError when aliases make it endless."""
        self.document.values[loc] = _place(node)
        self.nodes += 1
        if id(node) in self.open or self.nodes > MAX_NODES:
            line, column = _place(node)
            raise TaskError(f"{self.name}:{line}:{column}: aliases (`*name`) that repeat without end", EXAMPLE)
        if not node.tag.startswith("tag:yaml.org,2002:") or node.tag.startswith("tag:yaml.org,2002:python"):
            self.mistake(_place(node), f"{_dotted(loc)}the tag {node.tag!r} is not understood; leave it out")
            return None
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self.mapping(node, loc)
            if isinstance(node, yaml.SequenceNode):
                return [self.build(item, (*loc, n)) for n, item in enumerate(node.value)]
            assert isinstance(node, yaml.ScalarNode)
            return scalar(node, typed=TYPED_BELOW in loc)
        finally:
            self.open.discard(id(node))

    def mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, Any]:
        """Give a mapping's data; an empty value outside `params` counts as left out."""
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self.mistake(_place(key_node), f"{_dotted(loc)}a key must be a plain word")
                continue
            here = (*loc, key_node.value)
            if here in self.document.keys:
                first = self.document.keys[here][0]
                self.mistake(_place(key_node), f"{shown(here)}: given twice, first at line {first}")
                continue
            self.document.keys[here] = _place(key_node)
            value = self.build(value_node, here)
            if value is not None or TYPED_BELOW in loc:
                data[key_node.value] = value
        return data

    def mistake(self, place: Place, message: str) -> None:
        self.document.mistakes.append(Mistake(place, message))


def scalar(node: yaml.ScalarNode, *, typed: bool) -> Any:
    """Give a scalar's text, or (`typed`) its value by YAML 1.2's core schema; None for an empty one."""
    text: str = node.value
    if node.style in ("'", '"', "|", ">"):
        return text
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if not typed:
        return text
    if text.lower() in ("true", "false") and text in (text.lower(), text.title(), text.upper()):
        return text.lower() == "true"
    if re.fullmatch(r"[-+]?[0-9]+", text):
        return int(text)
    if re.fullmatch(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", text):
        return float(text)
    return text


def shown(loc: Loc) -> str:
    """Write a location as people do: `context[0].path`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")


def _dotted(loc: Loc) -> str:
    return f"{shown(loc)}: " if loc else ""


def _place(node: yaml.Node) -> Place:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _plainly(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or error.context or "not YAML"
    if "'\\t'" in problem or "\\t" in problem:
        return "a tab; YAML indents with spaces only"
    if "mapping values are not allowed" in problem:
        return "a second `: ` in one line; quote the text, or indent with care"
    if "single document" in (error.context or ""):
        return "a second document (`---`); a task is one"
    context = f" {error.context}" if error.context and error.context != problem else ""
    return f"not YAML: {problem}{context}"
