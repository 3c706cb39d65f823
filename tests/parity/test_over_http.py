"""Promises that only a server can judge: how many requests are open at once, what stands in a prompt, which key is sent.

The model is an OpenAI-compatible server on the loopback address, named as users of the reference library name it.
"""

from __future__ import annotations

import ast
import asyncio
import itertools
import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent import RLM
from tests.loopback.behaviours import Answer
from tests.loopback.server import Loopback, loopback
from tests.parity.asking import RUNS_CONTEXT

SECRET = "sk-given-as-such-0123456789"


class Counting:
    """A behaviour that answers `echo X` with X after a random delay, all else with the usual cell, and counts what is open."""

    def __init__(self) -> None:
        self.open = self.peak = 0
        self.prompts: list[str] = []
        self._lock, self._random = threading.Lock(), random.Random(7)

    def __call__(self, request: dict[str, Any], n: int) -> Answer:
        last = str(request["messages"][-1]["content"])
        with self._lock:
            self.prompts.append("\n".join(str(m["content"]) for m in request["messages"]))
            delay = self._random.uniform(0.005, 0.06)
        if not last.startswith("echo "):
            return Answer(str(RUNS_CONTEXT["reply"]))
        with self._lock:
            self.open += 1
            self.peak = max(self.peak, self.open)
        time.sleep(delay)
        with self._lock:
            self.open -= 1
        return Answer(last.removeprefix("echo "))


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with loopback() as made:
        yield made


@pytest.fixture
def counting(server: Loopback) -> Counting:
    server.behave = made = Counting()
    return made


def opened(server: Loopback, **options: Any) -> RLM:
    """Return an RLM as a user of the reference library makes one."""
    backend = {"model_name": "loopback", "base_url": server.api_base, "api_key": SECRET}
    return RLM(backend="openai", backend_kwargs=backend, **options)


@pytest.mark.parametrize("cap", [1, 3])
def test_the_cap_of_requests_is_never_exceeded_and_the_order_is_kept(
    server: Loopback, counting: Counting, cap: int
) -> None:
    code = "out = [llm_query_batched([f'echo {n}' for n in range(15)]), llm_query_batched([f'echo {n}' for n in range(5)])]"
    with opened(server, max_concurrent_subcalls=cap) as rlm:
        done = rlm.completion(code, question="q")
    assert ast.literal_eval(done.response) == [[str(n) for n in range(k)] for k in (15, 5)]
    assert counting.peak == cap


def test_the_cap_holds_over_children_and_threads_together(server: Loopback, counting: Counting) -> None:
    # DEV: each batch and each child has a pool of its own there.
    child = "out = llm_query_batched([f'echo {n}' for n in range(4)])"
    code = (
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(3) as pool:\n"
        f"    jobs = [pool.submit(rlm_query_batched, ['a'] * 3, [{child!r}] * 3), pool.submit(llm_query, 'echo x')]\n"
        "    out = [job.result() for job in jobs]"
    )
    with opened(server, max_concurrent_subcalls=2) as rlm:
        children, one = ast.literal_eval(rlm.completion(code, question="q").response)
    assert [ast.literal_eval(answer) for answer in children] == [["0", "1", "2", "3"]] * 3 and one == "x"
    assert counting.peak == 2


def test_ten_completions_at_once_on_one_event_loop(server: Loopback, counting: Counting) -> None:
    # DEV: there is no acompletion there.
    async def all_of_them(rlm: RLM) -> list[str]:
        asked = (rlm.acompletion(f"out = llm_query('echo {n}')", question=f"q {n}") for n in range(10))
        return [done.response for done in await asyncio.gather(*asked)]

    with opened(server) as rlm:
        assert asyncio.run(all_of_them(rlm)) == [repr(str(n)) for n in range(10)]


def test_the_prompt_holds_question_context_and_variables(server: Loopback, counting: Counting) -> None:
    with opened(server) as rlm:
        rlm.completion("out = 1", question="How many, exactly?")
    first = counting.prompts[0]
    assert (
        "How many, exactly?" in first and "context: a text of 7 characters" in first and "variables: none yet" in first
    )


def test_one_s_own_system_prompt_may_hold_braces(server: Loopback, counting: Counting) -> None:
    # DEV: there a brace has to be doubled.
    mine = 'Reply with {"k": 1} and {{custom}} {.'
    with opened(server, custom_system_prompt=mine, user_prologue="First of all, be brief.") as rlm:
        rlm.completion("out = 1", question="And how many?")
    assert mine in counting.prompts[0]
    assert "First of all, be brief.\n\nAnd how many?" in counting.prompts[0]


def test_a_long_context_never_stands_in_a_prompt(server: Loopback, counting: Counting) -> None:
    with opened(server) as rlm:
        rlm.completion("out = len(context)" + " " * 100_000 + "# the needle", question="q")
    assert "the needle" not in counting.prompts[0] and len(counting.prompts[0]) < 30_000


def test_a_key_that_is_given_as_such_is_sent_and_gets_nowhere_else(
    server: Loopback, counting: Counting, tmp_path: Path
) -> None:
    # DEV: cells run in the process that holds the keys there.
    code = "import os, json; out = json.dumps([dict(os.environ), open('/proc/self/environ').read()])"
    before = len(server.ledger.requests)
    with opened(server, workspace=tmp_path / "w") as rlm:
        done = rlm.completion(code, question="q")
    assert {line["key"] for line in server.ledger.requests[before:]} == {SECRET}
    assert SECRET not in json.dumps([done.response, repr(rlm._task), repr(rlm._options.task())])
    files = [p.read_bytes() for p in (tmp_path / "w").rglob("*") if p.is_file()]
    assert files and not any(SECRET.encode() in data for data in files)


def test_sampling_arguments_reach_the_model(server: Loopback) -> None:
    seen: list[dict[str, Any]] = []

    def behave(request: dict[str, Any], n: int) -> Answer:
        seen.append(request)
        return Answer(str(RUNS_CONTEXT["reply"]) if n and "<task>" in str(request["messages"]) else "said")

    server.behave = behave
    with opened(server, sampling_args={"temperature": 0.25}, sub_sampling_args={"temperature": 0.75}) as rlm:
        rlm.completion("out = llm_query('x')", question="q")
    assert [request["temperature"] for request in seen] == [0.25, 0.75]


def test_a_final_answer_in_words_when_the_iterations_are_used_up(server: Loopback) -> None:
    numbers = itertools.count()

    def behave(request: dict[str, Any], _n: int) -> Answer:
        if "You have no steps left" in str(request["messages"][-1]["content"]):
            return Answer("in words")
        return Answer(f"I look.\n```repl\nprint({next(numbers)})\n```")

    server.behave = behave
    with opened(server, max_iterations=2) as rlm:
        done = rlm.completion("x", question="q")
    # DEV: `outcome` says so; there nothing does.
    assert (done.response, done.steps, done.outcome.kind) == ("in words", 2, "budget")
