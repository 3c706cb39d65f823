"""What the reference library promises of persistent contexts and histories; `DEV:` marks where we do better on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import RLM
from agent.errors import RequestRejected
from tests.parity.asking import RUNS_CONTEXT, cell, out, scripted

NAMES = "out = sorted(n for n in globals() if n.split('_')[0] in ('context', 'history'))"


@pytest.fixture
def rlm(tmp_path: Path) -> Iterator[RLM]:
    with scripted(tmp_path, RUNS_CONTEXT, persistent=True) as made:
        yield made


def test_contexts_are_numbered_and_stay_readable(rlm: RLM) -> None:
    out(rlm, "out = 'first'")
    out(rlm, "out = 'second'")
    contexts = out(rlm, "out = [context_0, context_1, context_2 == context]")
    # DEV: `context` is the newest one; in the reference it stays the first for ever.
    assert contexts == ["out = 'first'", "out = 'second'", True]


def test_a_context_of_any_kind_stays_readable(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("from a file")
    look = cell("FINAL([type(context).__name__, context_0[0].text, context_1])")
    with scripted(tmp_path, {"match": "^<task>\nlook", **look}, "FINAL(1)", persistent=True) as rlm:
        rlm.completion(tmp_path / "a.txt", question="q")
        rlm.completion({"k": [1]}, question="q")
        assert rlm.completion(["x"], question="look").response == "['list', 'from a file', {'k': [1]}]"


def test_histories_are_chat_messages_of_the_earlier_completions(rlm: RLM) -> None:
    out(rlm, "print('shown'); out = 1")
    out(rlm, "out = 2")
    assert out(rlm, NAMES) == ["context", "context_0", "context_1", "context_2", "history", "history_0", "history_1"]
    told = out(rlm, "out = [[m['role'] for m in history_0], history_0[0]['content'], history_0[-1]['content']]")
    assert told == [["user", "assistant", "user"], "Run what stands in the context.", "shown"]


def test_histories_are_deep_copies(rlm: RLM) -> None:
    out(rlm, "out = 1")
    out(rlm, "history_0[0]['content'] = 'mine'; history_0.append('x'); out = 2")
    assert out(rlm, "out = [len(history_0), history_0[0]['content']]") == [3, "Run what stands in the context."]


def test_variables_stay_beside_contexts_and_histories(rlm: RLM) -> None:
    out(rlm, "kept = [1]\ndef f(x): return x + kept[0]\nout = 1")
    assert out(rlm, "kept.append(2); out = [kept, f(1), len(history_0)]") == [[1, 2], 2, 3]


def test_an_earlier_answer_does_not_end_the_next_completion(tmp_path: Path) -> None:
    first, second = cell("FINAL('old')"), {"match": "^<task>\nnew", **cell("out = dict(answer)")}
    with scripted(tmp_path, second, first, cell("FINAL(out)"), persistent=True) as rlm:
        assert rlm.completion("x", question="q").response == "old"
        assert rlm.completion("x", question="new").response == "{'content': '', 'ready': False}"


def test_variables_outlive_a_completion_that_broke(tmp_path: Path) -> None:
    # DEV: there a completion that raises leaves no namespace that could be trusted.
    no = {"match": "^<task>\nbroken", "error": {"kind": "rejected", "message": "no"}, "times": 100}
    with scripted(tmp_path, no, RUNS_CONTEXT, persistent=True) as rlm:
        out(rlm, "kept = 5; out = 1")
        with pytest.raises(RequestRejected):
            rlm.completion("x", question="broken")
        assert out(rlm, "out = kept") == 5


def test_without_persistent_nothing_survives(tmp_path: Path) -> None:
    with scripted(tmp_path, RUNS_CONTEXT) as rlm:
        out(rlm, "kept = 1; out = 1")
        assert out(rlm, NAMES.replace("('context", "('kept', 'context")) == ["context", "history"]


def test_another_process_goes_on_with_contexts_and_variables(tmp_path: Path) -> None:
    # DEV: there everything ends with the process.
    for code, expected in (
        ("kept = 7; out = 0", 0),
        ("out = [kept, context_0, len(history_0)]", [7, "kept = 7; out = 0", 3]),
    ):
        with scripted(tmp_path, RUNS_CONTEXT, persistent=True, workspace=tmp_path / "w") as rlm:
            assert out(rlm, code) == expected
