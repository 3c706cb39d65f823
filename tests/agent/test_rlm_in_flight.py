"""What is in flight when a completion's time ends, or when its RLM is closed: it ends soon, with the answer so far."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agent import Completion, TimeoutExceededError
from tests.parity.asking import cell, requests, scripted

LONG = 20
SLOW: list[dict[str, Any]] = [
    {"match": "^slow", "reply": "x", "delay": LONG},
    {"match": "^<task>\nchild", "reply": "x", "delay": LONG},
]
IN_FLIGHT: dict[str, dict[str, Any]] = {
    "a step": {"reply": "x", "delay": LONG},
    "a sub-call": cell("llm_query('slow')"),
    "a cell": cell(f"import time; time.sleep({LONG})"),
    "a child": cell("rlm_query('child', context='x')"),
}


@pytest.mark.parametrize("last", IN_FLIGHT.values(), ids=IN_FLIGHT)
def test_a_time_limit_ends_what_is_in_flight(tmp_path: Path, last: dict[str, Any]) -> None:
    steps = (*SLOW, "answer['content'] = 'so far'", last, cell("1", forever=True))
    with scripted(tmp_path, *steps, max_timeout=2) as rlm, pytest.raises(TimeoutExceededError) as caught:
        rlm.completion("x", question="q")
    assert caught.value.partial_answer == "so far"
    assert caught.value.completion.seconds < LONG - 2, "it was not waited for"


def test_a_persistent_variable_that_is_costly_to_keep_is_kept(tmp_path: Path) -> None:
    heavy = (
        "import time\nclass H:\n    def __reduce__(self):\n        time.sleep(0.3)\n        return (H, ())\n"
        "h = H(); out = 1"
    )
    steps = [cell("exec(context)"), cell("late = 5"), cell("FINAL(1)")]
    with scripted(tmp_path, {"match": "^<task>\nlook", **cell("FINAL(late)")}, *steps, persistent=True) as rlm:
        rlm.completion(heavy, question="q")
        assert rlm.completion("x", question="look").response == "5"


def test_closing_ends_a_completion_whose_sub_call_is_in_flight(tmp_path: Path) -> None:
    slow = {"match": "^slow", "reply": "x", "delay": 60}
    rlm = scripted(tmp_path, slow, "answer['content'] = 'so far'", "FINAL(llm_query('slow'))")
    ended: list[Completion] = []
    thread = threading.Thread(target=lambda: ended.append(rlm.completion("x", question="q")))
    thread.start()
    while len(requests(tmp_path)) < 3:
        time.sleep(0.02)
    rlm.close()
    thread.join(20)
    assert ended[0].outcome.kind == "stopped" and ended[0].response == "so far"
