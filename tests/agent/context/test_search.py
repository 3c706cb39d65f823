"""Searches find what `re.finditer` finds in the decoded text, with the engine and without, over any cut."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agent.context import Document, scan
from agent.context.engine import engine
from agent.context.pattern import plan
from agent.context.reading import Listed
from agent.context.windows import SMALLEST, Sizes, windows

ATOMS = [
    "a",
    "ab",
    "ö",
    "k",
    "S",
    "[ab]",
    "[^a]",
    r"\w",
    r"\d",
    r"\s",
    r"\W",
    ".",
    "[a-zö]",
    r"\S",
    "(?i:k)",
    r"\n",
    "_",
    "é",
]
PLACES = [r"\b", "^", "$", "(?=b)", "(?<=a)", "(?!a)", r"\B", ""]
REPEATS = ["", "", "*", "+", "?", "{2}", "{1,3}", "+?"]

pieces = st.builds(
    lambda place, atom, repeat: place + (atom if len(atom) == 1 or atom[0] in "[\\" else f"(?:{atom})") + repeat,
    st.sampled_from(PLACES), st.sampled_from(ATOMS), st.sampled_from(REPEATS),
)  # fmt: skip
sequences = st.lists(pieces, min_size=1, max_size=4).map("".join)
patterns = st.one_of(
    sequences, st.builds("({}|{}){}".format, sequences, sequences, st.sampled_from(["", r"\b", "$", "b"]))
)
texts = st.one_of(
    st.text("aabbk1SöéKſ _.\n\r", max_size=60).map(str.encode),
    st.lists(
        st.sampled_from([b"a", b"b", b"\xc3\xb6", b"\xc3", b"\x80", b"\xff", b"\n", b"\0", b"k "]), max_size=40
    ).map(b"".join),
)


#: Windows of a few bytes, so that each text has many seams; a match and what it looks at fit into what is seen beside them.
TINY = [Sizes(4, 8, 2, 256, 64), Sizes(8, 64, 8, 256, 64), Sizes()]
fixed = st.lists(
    st.builds(
        lambda place, atom, repeat, end: place + atom + repeat + end,
        st.sampled_from(["", "", r"\b", "^"]),
        st.sampled_from(["a", "ab", "k", "ö", r"\d", r"\w", "[a-k]", "[^a\n]", "(?:ab|ba)", "(a|k)", "_", "é", " "]),
        st.sampled_from(["", "", "{2}", "{3}"]),
        st.sampled_from(["", "", r"\b"]),
    ),
    min_size=1,
    max_size=3,
).map("".join)
fixed_patterns = st.one_of(
    fixed,
    st.lists(fixed, min_size=2, max_size=4).map("|".join),
    st.builds("{}(?:{}|{}){}".format, fixed, fixed, fixed, fixed),
)


def expected(pattern: str, ignore_case: bool, data: bytes) -> list[tuple[int, int]]:
    text = data.decode("utf-8", "surrogateescape")
    flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
    found, at, offset = [], 0, 0
    for match in re.finditer(pattern, text, flags):
        offset += len(text[at : match.start()].encode("utf-8", "surrogateescape"))
        at = match.start()
        found.append((offset, offset + len(match.group().encode("utf-8", "surrogateescape"))))
    return found


def sifted_and_confirmed(listed: Listed, pattern: str, ignore_case: bool, with_engine: bool) -> list[tuple[int, int]]:
    """Search as for one range of a large material, so that even a small text goes through the engine."""
    total = 1 << 30 if with_engine else 0
    return list(scan.find(pattern, ignore_case, listed, 0, listed.size, total))


def in_tiny_windows(
    listed: Listed, pattern: str, ignore_case: bool, with_engine: bool, sizes: Sizes
) -> list[tuple[int, int]]:
    searcher = scan.Searcher(pattern, ignore_case, 1 << 30 if with_engine else 0, sizes=sizes)
    return [pair for batch in searcher.batches(listed, 0, listed.size) for pair in zip(*batch, strict=True)]


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(texts, patterns, st.booleans())
def test_every_pattern_agrees_with_re(tmp_path: Path, data: bytes, pattern: str, ignore_case: bool) -> None:
    path = tmp_path / "t"
    path.write_bytes(data)
    if b"\r" in data:
        pattern = pattern.replace("$", "")  # `$` stands before CRLF too, on purpose
    wanted = expected(pattern, ignore_case, data)
    for with_engine, sizes in itertools.product((True, False), TINY):
        assert in_tiny_windows(Listed(str(path), len(data)), pattern, ignore_case, with_engine, sizes) == wanted


@example(b"k", "ab|k|k", False)
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(texts, fixed_patterns, st.booleans())
def test_patterns_that_the_engine_decides_agree_with_re(
    tmp_path: Path, data: bytes, pattern: str, ignore_case: bool
) -> None:
    path = tmp_path / "t"
    path.write_bytes(data)
    wanted = expected(pattern, ignore_case, data)
    for sizes in TINY:
        assert in_tiny_windows(Listed(str(path), len(data)), pattern, ignore_case, True, sizes) == wanted


@pytest.mark.parametrize(
    ("pattern", "widths"),
    [
        ("needle", (6,)),
        ("größe|a", (7, 1)),
        (r"\b(19|20)\d\d-\d\d\b", (7,)),
        ("(foo|ba)r", (4, 3)),
        (r"a{3}\b", (3,)),
        ("a+b", None),
        ("ab$", None),
        (r"a\B", None),
        ("a(?=b)", None),
        (r"-\b", None),
        (r"a\s", None),
        ("(a|ab)(c|bc)", None),
    ],
)
def test_which_patterns_the_engine_decides(pattern: str, widths: tuple[int, ...] | None) -> None:
    decided = plan(pattern).exact
    assert (decided and decided.widths) == widths


@pytest.mark.parametrize(
    "pattern",
    [
        r"needle",
        r"\bn\w+e\b",
        r"needle\s+again",
        r"(?s)needle.{0,3}again",
        r"^needle",
        r"again$",
        r"größe\b",
        r"(\d)\1{3}",
        r"(?<=ö )x|needle",
    ],
)
@pytest.mark.parametrize("line", [60, 10**9])
def test_matches_across_the_cuts_of_windows(tmp_path: Path, pattern: str, line: int) -> None:
    path = tmp_path / "t"
    cuts = [window.end for window in windows(0, 800_000)][:-1]
    data = bytearray((b"filler wor\xc3\xb6 1234 " * 60_000)[:800_000])
    for at in range(line, len(data), line):
        data[at] = 10
    for number, cut in enumerate(cuts):
        for shift in (-13, -6, 0, 6, 2000):
            part = [b" needle\nagain ", b"\nneedle again\n", "ö xgröße 77777".encode()][number % 3]
            data[cut + shift : cut + shift + len(part)] = part
    path.write_bytes(data)
    wanted = expected(pattern, False, bytes(data))
    assert wanted
    assert sifted_and_confirmed(Listed(str(path), len(data)), pattern, False, True) == wanted
    assert sifted_and_confirmed(Listed(str(path), len(data)), pattern, False, False) == wanted


def test_a_search_that_is_left_early_reads_little(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"needle\n" * 10)
    with open(path, "r+b") as file:
        file.truncate(SMALLEST * 2)
    listed = Listed(str(path), 10 << 30)  # says more than there is: reading on would fail
    with open(path, "r+b") as file:
        file.truncate(10 << 30)
    found = Document(str(path), "t", 0, listed.size).iter_search("needle")
    assert [next(found).start for _ in range(3)] == [0, 7, 14]
    found.close()  # type: ignore[attr-defined]


@pytest.mark.skipif(find_spec("hyperscan") is None, reason="needs the engine")
def test_the_engine_takes_what_models_write() -> None:
    for pattern in (
        r"\bclass \w+\(",
        r"TODO|FIXME",
        r"https?://[^\s]+",
        r"\d{4}-\d\d-\d\d",
        r"(?i)error.*timeout",
        "größe",
        r"a\s+b",
    ):
        ready = plan(pattern)
        assert engine((ready.superset,), not ready.lines_only) is not None, pattern


def test_without_the_engine_all_is_found(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text("filler\n" * 100_000 + "the needle\n" + "filler\n" * 100_000)
    code = (
        "import sys; sys.modules['hyperscan'] = None\n"
        "from agent.context import Document\n"
        f"d = Document({str(path)!r}, 't', 0, {path.stat().st_size})\n"
        r"print([(m.line, m.matched) for p in ('needle', r'n\we+dle', r'needle\s') for m in d.search(p)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[(100001, 'needle'), (100001, 'needle'), (100001, 'needle\\n')]"
