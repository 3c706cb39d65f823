"""What a search returns behaves as a list of matches, and holds offsets alone."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from agent.context import Context, Match, Matches, open_context, to_refs
from agent.context.manifest import ContextSource, build_manifest


@pytest.fixture
def context(tmp_path: Path) -> Context:
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text("" if number == 2 else "a needle, a needle\nno more\nneedle\n")
    return open_context(build_manifest([ContextSource(str(tmp_path))]))


def test_it_reads_like_a_list(context: Context) -> None:
    found = context.search("needle")
    plain = list(found)
    assert isinstance(found, Matches)
    assert len(found) == len(plain) == 9
    assert all(isinstance(match, Match) for match in plain)
    assert [found[number] for number in range(-9, 9)] == plain + plain
    for where in (slice(2, 7), slice(None, None, -2), slice(-3, None), slice(5, 2), slice(1, 100, 3), slice(8)):
        assert found[where] == plain[where]
        assert list(found[where]) == plain[where]
    assert found == plain == found
    assert found != plain[1:]
    assert found[3] in found
    assert found.index(found[3]) == 3
    assert list(reversed(found)) == plain[::-1]
    assert found + plain == plain + found == found + found == plain + plain
    assert sorted(found, key=lambda match: -match.start)[0].start == plain[2].start
    for outside in (9, -10):
        with pytest.raises(IndexError):
            found[outside]


def test_nothing_found_is_an_empty_list(context: Context) -> None:
    found = context.search("nowhere")
    assert found == []
    assert not found
    assert repr(found) == repr(found[:]) == "[]"


def test_its_repr_is_short_and_shows_places(context: Context) -> None:
    assert repr(context.search("needle", limit=2)) == "[<Match 0.txt:1>, <Match 0.txt:1>]"
    many = context.search(r"\w")
    assert repr(many).endswith(f", … {len(many)} in all]")
    assert len(repr(many)) < 500


def test_limits_cut_within_a_document_and_between(context: Context) -> None:
    whole = context.search("needle")
    for limit in range(-1, 11):
        assert context.search("needle", limit=limit) == whole[: max(limit, 0)]
        assert context[0].search("needle", limit=limit) == whole[:3][: max(limit, 0)]


def test_it_is_passed_by_reference_and_survives_a_snapshot(context: Context) -> None:
    found = context.search("needle")
    assert to_refs(found) == to_refs(list(found))
    again = pickle.loads(pickle.dumps(found))
    assert again == found
    assert [match.text for match in again] == [match.text for match in found]


def test_a_hundred_thousand_matches_are_two_numbers_each(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("ab\n" * 100_000)
    doc = open_context(build_manifest([ContextSource(str(tmp_path))]))[0]
    found = doc.search("ab", limit=10**9)
    assert [found[number].start for number in (0, 1, 99_999)] == [0, 3, 299_997]
    assert found[99_999].line == 100_000
    held = sys.getsizeof(found._starts) + sys.getsizeof(found._ends)
    assert len(pickle.dumps(found)) < held + 1000 < 2 * 8 * 120_000
