"""The parity table against the parity tests: each names the other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = (ROOT / "docs" / "parity.md").read_text(encoding="utf-8")


def written_tests() -> dict[str, bool]:
    """Return each parity test as `file::name`, and whether its source marks a deviation."""
    found = {}
    for file in (ROOT / "tests" / "parity").glob("test_*.py"):
        source = file.read_text(encoding="utf-8")
        lines = source.split("\n")
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                first = min((d.lineno for d in node.decorator_list), default=node.lineno)
                text = "\n".join(lines[first - 1 : node.end_lineno])
                found[f"{file.name}::{node.name}"] = "# DEV" in text or file.name == "test_crash.py"
    return found


def rows() -> list[tuple[str, str]]:
    return re.findall(r"^\| [^|]+ \| `([^`]+)` \| ([^|]+) \|$", TABLE, re.MULTILINE)


def test_every_test_in_the_table_exists_and_every_test_is_in_it_once() -> None:
    named = [name for name, _ in rows()]
    assert sorted(named) == sorted(written_tests())


def test_deviations_are_marked_in_both_places_and_say_why() -> None:
    told = dict(rows())
    assert {name: why.startswith("DEV: ") for name, why in told.items()} == written_tests()
    assert all(why == "same" or len(why) > len("DEV: ") + 3 for why in told.values())
