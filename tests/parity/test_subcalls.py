"""What the reference library promises of sub-calls, through `RLM` and its real REPL; `DEV:` marks where we do better on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import RLM
from agent.errors import KeyRejected
from tests.parity.asking import RUNS_CONTEXT, cell, out, requests, scripted, write_script

NUMBER = "{'type': 'object', 'properties': {'n': {'type': 'integer'}}, 'required': ['n']}"
ANSWERS = [
    {"match": "^say (one|two)", "reply": "said"},
    {"match": "^slow", "reply": "slow", "delay": 0.2},
    {"match": "^refuse", "error": {"kind": "rejected", "message": "no way"}, "times": 100000},
    {"match": "^typed", "reply": '{"n": 1}'},
    {"match": "^wrong", "reply": "no JSON"},
    {"match": "^That does not fit.*no JSON", "reply": '```json\n{"n": 2}\n```'},
    {"match": "^never", "reply": '{"n": "one"}'},
    {"match": "^That does not fit.*not of type", "reply": '{"n": "two"}'},
    {"match": "^<task>\nrefused child", "error": {"kind": "rejected", "message": "no child"}, "times": 100000},
    RUNS_CONTEXT,
]


@pytest.fixture(scope="module")
def rlm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RLM]:
    with scripted(tmp_path_factory.mktemp("subcalls"), *ANSWERS) as made:
        yield made


def test_a_sub_call_answers(rlm: RLM) -> None:
    assert out(rlm, "out = llm_query('say one')") == "said"


def test_a_failed_sub_call_is_an_error_value_that_is_falsy(rlm: RLM) -> None:
    # DEV: the reference's error texts are true, so they pass for answers.
    code = "e = llm_query('refuse')\nout = [str(e), bool(e), isinstance(e, CallError)]"
    assert out(rlm, code) == ["Error: no way", False, True]


def test_a_batch_keeps_the_order_of_its_prompts_under_any_delay(rlm: RLM) -> None:
    assert out(rlm, "out = llm_query_batched(['slow', 'say one', 'slow', 'say two'])") == ["slow", "said"] * 2


@pytest.mark.parametrize("name", ["llm_query_batched", "llm_batch", "rlm_query_batched"])
def test_a_batch_of_none_is_empty(rlm: RLM, name: str) -> None:
    assert out(rlm, f"out = {name}([])") == []


def test_a_batch_of_one(rlm: RLM) -> None:
    assert out(rlm, "out = llm_query_batched(['say one'])") == ["said"]


def test_one_failed_slot_leaves_the_others_unharmed(rlm: RLM) -> None:
    assert out(rlm, "out = llm_query_batched(['say one', 'refuse', 'say two'])") == ["said", "Error: no way", "said"]


def test_all_slots_may_fail(rlm: RLM) -> None:
    # DEV: in the reference's subprocess kernel a failed slot is an empty text.
    assert out(rlm, "b = llm_query_batched(['refuse'] * 3)\nout = [b, any(b)]") == [["Error: no way"] * 3, False]


def test_a_batch_refuses_what_is_no_string_slot_by_slot(rlm: RLM) -> None:
    code = "out = llm_query_batched(['say one', 3, None, 'say two'])"
    assert out(rlm, code) == [
        "said",
        "Error: prompt 1 is a int, not a str",
        "Error: prompt 2 is a NoneType, not a str",
        "said",
    ]


def test_a_text_is_no_batch(rlm: RLM) -> None:
    code = "try: llm_query_batched('say')\nexcept TypeError as error: out = str(error)"
    assert "use llm_query for one" in out(rlm, code)


def test_threads_in_a_cell_may_make_sub_calls(rlm: RLM) -> None:
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(8) as pool: out = list(pool.map(llm_query, ['say one', 'slow'] * 6))"
    )
    assert out(rlm, code) == ["said", "slow"] * 6


def test_asyncio_in_a_cell_may_make_sub_calls(rlm: RLM) -> None:
    code = (
        "import asyncio\n"
        "async def main(): return await asyncio.gather(*(asyncio.to_thread(llm_query, p) for p in ('slow', 'say one')))\n"
        "out = asyncio.run(main())"
    )
    assert out(rlm, code) == ["slow", "said"]


def test_a_thread_that_outlives_its_cell_may_make_sub_calls_in_a_later_one(tmp_path: Path) -> None:
    # DEV: there a call from outside of a cell has nobody who answers it.
    first = (
        "import threading\nsaid, later = [], threading.Event()\n"
        "def ask():\n    later.wait()\n    said.append(llm_query('say one'))\n"
        "thread = threading.Thread(target=ask)\nthread.start()"
    )
    with scripted(tmp_path, *ANSWERS[:1], first, "later.set()\nthread.join()\nFINAL(said)") as rlm:
        assert rlm.completion("", question="q").response == "['said']"


def test_a_json_schema_gives_the_value(rlm: RLM) -> None:
    # DEV
    assert out(rlm, f"out = llm_query('typed', schema={NUMBER})") == {"n": 1}


def test_a_reply_that_does_not_fit_its_schema_is_asked_for_once_more(rlm: RLM) -> None:
    # DEV
    assert out(rlm, f"out = llm_query('wrong', schema={NUMBER})") == {"n": 2}


def test_a_reply_that_never_fits_its_schema_is_an_error_value(rlm: RLM) -> None:
    # DEV
    code = f"e = llm_query('never', schema={NUMBER})\nout = [str(e), bool(e)]"
    text, truth = out(rlm, code)
    assert "asked twice" in text and "integer" in text and truth is False


def test_a_pydantic_model_is_a_schema(rlm: RLM) -> None:
    # DEV
    code = (
        "from pydantic import BaseModel\nclass Number(BaseModel):\n    n: int\n"
        "v = llm_query('typed', schema=Number)\nout = [type(v).__name__, v.n]"
    )
    assert out(rlm, code) == ["Number", 1]


def test_what_is_no_schema_is_told_in_the_cell(rlm: RLM) -> None:
    code = "try: llm_query('typed', schema=5)\nexcept TypeError as error: out = str(error)"
    assert "pydantic" in out(rlm, code)


def test_a_child_has_the_prompt_s_context_and_a_repl_of_its_own(rlm: RLM) -> None:
    code = (
        "mark = 1\nchild = \"out = ['mark' in globals(), type(context).__name__]\"\n"
        "out = [rlm_query('go', context=child), mark]"
    )
    assert out(rlm, code) == ["[False, 'str']", 1]


def test_children_in_a_batch_keep_their_order(rlm: RLM) -> None:
    code = (
        "out = rlm_query_batched(['a', 'b', 'c'], [f\"import time; time.sleep({s}); out = {s}\" for s in (.2, .1, 0)])"
    )
    assert out(rlm, code) == ["0.2", "0.1", "0"]


def test_a_failed_child_is_an_error_value_and_leaves_the_others_unharmed(rlm: RLM) -> None:
    code = (
        "a, b, c = rlm_query_batched(['go', 'refused child', 'go'], ['out = 1', '', 'out = 3'])\n"
        "out = [a, str(b), bool(b), c]"
    )
    first, error, truth, last = out(rlm, code)
    assert (first, truth, last) == ("1", False, "3")
    assert error.startswith("Error: ") and "no child" in error


def test_sub_calls_and_children_are_recorded_on_the_step(rlm: RLM) -> None:
    done = rlm.completion("llm_query('say one'); rlm_query('go', context='out = 1'); out = 1", question="Run it.")
    journal = rlm._opened.journal
    from sqlalchemy import text

    rows = journal.read(
        lambda c: c.execute(
            text("SELECT kind, state, ok FROM call WHERE rollout = :r AND step = 1 ORDER BY kind"), {"r": done.rollout}
        ).fetchall()
    )
    assert [tuple(row) for row in rows] == [("llm", "done", 1), ("rlm", "done", 1), ("root", "done", 1)]


def test_usage_counts_the_children_s_calls(rlm: RLM) -> None:
    # DEV: the reference counts this level's calls alone.
    done = rlm.completion("rlm_query('go', context=\"out = llm_query('say one')\"); out = 1", question="Run it.")
    assert done.spend.calls == done.usage_summary.total_calls == 3


def test_a_model_that_the_cell_names_gets_the_sub_call_and_the_child(tmp_path: Path) -> None:
    sub = write_script(tmp_path / "sub", {"match": "^who", "reply": "the sub model"}, cell("FINAL('a child of sub')"))
    root = [{"match": "^who", "reply": "the root model"}, RUNS_CONTEXT]
    with scripted(tmp_path / "root", *root, sub_model="offline/explorer", sub_model_params=sub) as rlm:
        code = "out = [llm_query('who', model='offline/scripted'), rlm_query('go', context='out = 5', model='offline/scripted')]"
        assert out(rlm, code) == ["the root model", "5"]


def test_sub_calls_and_children_go_to_the_sub_model_at_every_depth(tmp_path: Path) -> None:
    # DEV: a child's own sub-calls go back to the main backend there.
    child = cell("FINAL(llm_query('who'))")
    sub = write_script(tmp_path / "sub", {"match": "^who", "reply": "the sub model"}, child)
    root = [{"match": "^who", "reply": "the root model"}, "FINAL([llm_query('who'), rlm_query('go', context='x')])"]
    with scripted(tmp_path / "root", *root, sub_model="offline/scripted", sub_model_params=sub) as rlm:
        assert rlm.completion("x", question="q").response == "['the sub model', 'the sub model']"
    assert len(requests(tmp_path / "root")) == 1


def test_a_model_that_a_cell_names_and_that_cannot_be_had_is_an_error_value(rlm: RLM) -> None:
    # DEV: there the name is passed over and the default model answers.
    model = "offline/nobody"
    code = f"a, b = llm_query('say one', model={model!r}), rlm_query('go', 'x', model={model!r})\nout = [str(a), bool(a), str(b), bool(b)]"
    plain, falsy, child, none = out(rlm, code)
    assert (falsy, none) == (False, False) and plain.startswith("Error: ") and child.startswith("Error: ")


def test_a_run_s_own_model_that_cannot_be_had_ends_the_completion_and_it_goes_on_later(tmp_path: Path) -> None:
    # DEV: there the cell gets an error text, and goes on with it at the next model's cost.
    key = {"match": "^keyless", "error": {"kind": "key", "message": "the key is refused"}}
    answer = {"match": "^keyless", "reply": "now it works"}
    with scripted(tmp_path, key, answer, "FINAL(llm_query('keyless'))") as rlm:
        with pytest.raises(KeyRejected, match="the key is refused"):
            rlm.completion("x", question="q")
        assert rlm.completion("x", question="q").response == "now it works"
    assert [line["step"] for line in requests(tmp_path)] == [1, None, None], "the step was paid once"
