"""Calls of many rollouts on one event loop: merged, reused, bounded per model, written in groups, kept apart in failure."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from agent import RLM, Completion
from tests.e2e.harness import question

SCRIPT = """
- match: "^slow"
  delay: 0.3
  reply: slow answer
  forever: true
- match: "^bad"
  error: {kind: rejected, message: no such thing}
  forever: true
- match: "^q"
  reply: answer
  forever: true
- match: "<task>\\nkid"
  reply: |
    ```repl
    FINAL(llm_query("slow question of all kids"))
    ```
  forever: true
- reply: |
    ```repl
CELL
    ```
  forever: true
"""


def run(folder: Path, cell: str, **options: object) -> tuple[Completion, Counter[str]]:
    """Run a cell as the root's only step; returns the completion, and how often the model saw each sub-call."""
    body = "\n".join("    " + line for line in cell.strip().splitlines())
    (folder / "s.yaml").write_text(SCRIPT.replace("CELL", body))
    params = {"script": str(folder / "s.yaml"), "ledger": str(folder / "ledger.jsonl")}
    with RLM(model="offline/scripted", model_params=params, workspace=folder / "w", **options) as rlm:
        done = rlm.completion("the context", question="go")
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    return done, Counter(line["hash"] for line in lines if line["matched"])


def test_equal_prompts_of_one_cell_are_a_vote_and_each_is_asked(tmp_path: Path) -> None:
    done, seen = run(tmp_path, 'FINAL(str(llm_query_batched(["slow"] * 3)))')
    assert done.response == str(["slow answer"] * 3)
    assert list(seen.values()) == [3]


def test_the_same_question_of_two_rollouts_in_flight_is_asked_once(tmp_path: Path) -> None:
    done, seen = run(tmp_path, 'FINAL(str(rlm_query_batched([f"kid {n}" for n in range(4)])))')
    assert done.response == str(["slow answer"] * 4)
    assert sorted(seen.values()) == [1, 1, 1, 1, 1], "four children, one question"
    rows = question(tmp_path / "w", "SELECT state, ok, tokens_in > 0 FROM call WHERE kind = 'llm'")
    assert sorted(rows) == [("done", 1, 0)] * 3 + [("done", 1, 1)], "all settled, one paid"


def test_with_reuse_a_question_is_paid_once_in_a_run(tmp_path: Path) -> None:
    cell = 'first = llm_query_batched(["q"] * 3)\nFINAL(str(first + [llm_query("q"), llm_query("q2")]))'
    done, seen = run(tmp_path, cell, reuse=True)
    assert done.response == str(["answer"] * 5)
    assert sorted(seen.values()) == [1, 1]


def test_a_failed_slot_harms_no_other_and_is_no_answer(tmp_path: Path) -> None:
    cell = 'got = llm_query_batched(["q1", "bad", "q2", 7])\nFINAL(str([bool(g) for g in got] + [str(got[1]), str(got[3])]))'
    done, _ = run(tmp_path, cell)
    assert done.response.startswith("[True, False, True, False, 'Error: no such thing")
    assert "prompt 3 is a int, not a str" in done.response


@pytest.mark.parametrize("limits", [{"concurrency": 3}, {"concurrency": 50}])
def test_order_holds_and_the_cap_per_model_is_kept(tmp_path: Path, limits: dict[str, int]) -> None:
    cell = 'got = llm_query_batched([f"q{n}" for n in range(60)])\nFINAL(str(len(got)) + str(all(got)))'
    done, seen = run(tmp_path, cell, limits=limits)
    assert done.response == "60True" and len(seen) == 60


def test_calls_from_threads_and_coroutines_of_a_cell_are_answered(tmp_path: Path) -> None:
    cell = """
import asyncio
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(20) as pool:
    threads = list(pool.map(lambda n: llm_query(f"q{n}"), range(40)))
async def one(n):
    return await asyncio.to_thread(llm_query, f"q-async-{n}")
coroutines = await asyncio.gather(*(one(n) for n in range(20)))
FINAL(f"{threads.count('answer')} {coroutines.count('answer')}")
"""
    done, seen = run(tmp_path, cell)
    assert done.response == "40 20"
    assert len(seen) == 60


def test_all_calls_of_a_batch_are_settled_in_a_few_transactions(tmp_path: Path) -> None:
    done, _ = run(
        tmp_path, 'FINAL(str(len(llm_query_batched([f"slow {n}" for n in range(100)]))))', limits={"concurrency": 100}
    )
    assert done.response == "100"
    moments = question(tmp_path / "w", "SELECT count(DISTINCT started_at), count(*) FROM attempt WHERE n = 1")[0]
    assert moments[1] == 101 and moments[0] <= 10, "requests that go out together are noted together"


def test_a_budget_of_calls_holds_in_flight(tmp_path: Path) -> None:
    cell = 'got = llm_query_batched([f"slow {n}" for n in range(20)])\nFINAL(f"{sum(map(bool, got))} {str(got[-1])}")'
    done, seen = run(tmp_path, cell, limits={"calls": 8, "concurrency": 20})
    good = int(done.response.split()[0])
    assert good == 7 and sum(seen.values()) == 7, "one of the eight was the root's own"
    assert "calls" in done.response
