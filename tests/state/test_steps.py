"""A REPL's values in the journal, however many there are."""

from __future__ import annotations

from pathlib import Path

from state import steps
from state.journal import Journal


def test_more_values_than_a_statement_takes_variables_are_stored_once_and_loaded(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    try:
        values = {f"{number:064x}": b"%d" % number for number in range(260_000)}
        for _ in range(2):
            journal.write(lambda c: steps.store_values(c, values))
        assert journal.read(lambda c: steps.load_values(c, list(values))) == values
    finally:
        journal.close()
