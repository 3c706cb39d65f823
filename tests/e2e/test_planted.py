"""What a run found on its way is there at its end; `scripts/planted` does the same over two thousand steps."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.harness import assert_sound, question
from tests.e2e.planted import plan, walk

STEPS = 400


def test_what_was_found_on_the_way_is_in_the_prompt_or_one_call_away(tmp_path: Path) -> None:
    found, last, kills = walk(tmp_path, STEPS, kills=4)
    assert kills >= 3 and len(plan(STEPS)) == 50
    lost = [line for line in plan(STEPS).values() if not found.get(line) and line not in last]
    assert lost == []
    assert any(line in last for line in plan(STEPS).values()), "some are in the prompt itself"
    folds = question(tmp_path / "w", "SELECT count(*) FROM fold WHERE merged_into IS NULL")[0][0]
    assert 0 < folds <= 25
    assert_sound(tmp_path / "w")
