"""`rlm-agent ask` as a user runs it: the answer, its evidence and its spend; nonsense; and going on after a kill."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.harness import command, rlm

TEXT = "The survey began in May.\nThe relay tower is 187 metres high.\nIt was painted red.\n"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "tower.txt").write_text(TEXT)
    (folder / "other.txt").write_text("Nothing of interest.\n" * 50)
    return folder


def script(folder: Path, cell: str) -> list[str]:
    (folder / "s.yaml").write_text(
        f"- reply: |\n    Look.\n    ```repl\n    {cell}\n    ```\n  forever: true\n- match: slow\n  delay: 3\n  reply: late\n"
    )
    return ["--model", "offline/scripted"]


def test_the_explorer_answers_with_evidence_and_spend(notes: Path) -> None:
    code, out, err = rlm(
        "ask", "How many metres high is the relay tower?", "-c", str(notes), "--sub", "offline/explorer"
    )
    assert code == 0, out + err
    assert "187" in out
    assert "tower.txt:2  The relay tower is 187 metres high." in out
    assert "2 documents" in out and " calls · " in out


def test_json_is_one_document_with_everything_in_it(notes: Path) -> None:
    code, out, err = rlm(
        "ask",
        "How many metres high is the relay tower?",
        "-c",
        str(notes / "tower.txt"),
        "--sub",
        "offline/explorer",
        "--json",
    )
    assert code == 0, err
    document = json.loads(out)
    assert "187" in document["answer"] and document["outcome"]["kind"] == "done"
    assert {"document": "tower.txt", "line": 2, "text": "The relay tower is 187 metres high."} in document["evidence"]
    assert document["documents"] == 1 and document["spend"]["calls"] > 0


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["ask", "Why?", "-c", "/does/not/exist"], 2, "/does/not/exist"),
        (["ask", "  ", "-c", "."], 2, "question is empty"),
        (["ask", "Why?"], 2, "context"),
        (["ask", "Why?", "-c", ".", "--model", "offline/explorr"], 2, "did you mean 'offline/explorer'"),
        (["ask", "Why?", "-c", ".", "--limit", "stps=3"], 2, "did you mean 'steps'"),
        (["ask", "Why?", "-c", ".", "--route", "sideways"], 2, "sideways"),
    ],
)
def test_nonsense_is_named_with_the_way_out(notes: Path, arguments: list[str], code: int, told: str) -> None:
    got, out, err = rlm(*arguments)
    assert got == code, out + err
    assert told in err and "Traceback" not in err


def test_asked_again_after_a_kill_it_goes_on_where_it_was(notes: Path, isolated: Path) -> None:
    arguments = ("ask", "How many metres high is the relay tower?", "-c", str(notes), "--sub", "offline/explorer")
    process = command(*arguments)
    folder = isolated / "state" / "asks"
    until = time.monotonic() + 60
    while time.monotonic() < until and not list(folder.glob("*/.rlm-agent/journal.db")):
        time.sleep(0.02)
    time.sleep(0.4)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    code, out, err = rlm(*arguments)
    assert code == 0 and "187" in out, out + err
    assert not list(folder.glob("*")), "the journal goes once the answer is there"
