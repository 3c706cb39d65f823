"""The peer's half of `bench rlm`: the same work done by `rlms` (PyPI), run by the Python of its own venv.

`python peer_rlms.py NAME --runs N [--file F]` prints one JSON document with the samples. The peer is shown at its best: its
model is a client in its own process (no HTTP), its imports are not counted, and the first run is thrown away.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rlm.core.rlm as library
from rlm import RLM
from rlm.clients.base_lm import BaseLM
from rlm.core.lm_handler import LMHandler
from rlm.core.types import ModelUsageSummary, UsageSummary
from rlm.environments.ipython_repl import IPythonREPL
from rlm.environments.local_repl import LocalREPL

SEND = 'answer["content"] = {}\nanswer["ready"] = True'


class Instant(BaseLM):
    """A model that answers the root from a script, turn by turn, and every other prompt with `ok` after `delay` seconds."""

    script: tuple[str, ...] = ()
    delay = 0.0
    first_asked = 0.0
    longest: tuple[tuple[int, str], ...] = ()

    def __init__(self, model_name: str = "instant", **_: Any) -> None:
        super().__init__(model_name=model_name)
        self._turn = 0

    def completion(self, prompt: Any, model: str | None = None) -> str:
        """Answer as root (a list of messages) or as leaf (a text)."""
        if isinstance(prompt, str):
            time.sleep(self.delay)
            return "ok"
        Instant.first_asked = Instant.first_asked or time.perf_counter()
        turns = len(prompt)
        if turns in WATCHED:
            Instant.longest += ((WATCHED[turns], "\n".join(m["content"] for m in prompt)),)
        if not prompt[1]["content"].startswith("Answer the following"):  # the root was asked a question, a child is not
            time.sleep(self.delay)
            return cell(SEND.format("'ok'"))
        self._turn += 1
        return self.script[min(self._turn, len(self.script)) - 1]

    async def acompletion(self, prompt: Any, model: str | None = None) -> str:
        """Answer one prompt of a batch."""
        await asyncio.sleep(self.delay)
        return "ok"

    def get_usage_summary(self) -> UsageSummary:
        """Return a constant: counting is not what is measured."""
        return UsageSummary({self.model_name: self.get_last_usage()})

    def get_last_usage(self) -> ModelUsageSummary:
        """Return a constant."""
        return ModelUsageSummary(1, 1, 1)


#: messages in the prompt → the turn it is asked in; three more messages a turn
WATCHED: dict[int, int] = {}


def cell(code: str) -> str:
    """Return a reply with one cell."""
    return f"```repl\n{code}\n```"


def complete(code: str | tuple[str, ...], context: str = "hello", **settings: Any) -> tuple[str, float]:
    """Run one completion; returns (response, seconds)."""
    Instant.script = (cell(code),) if isinstance(code, str) else code
    Instant.first_asked = 0.0
    began = time.perf_counter()
    done = RLM(backend_kwargs={"model_name": "instant"}, **settings).completion(context, root_prompt="go")
    return done.response, time.perf_counter() - began


def samples(runs: int, once: Callable[[], float]) -> list[float]:
    """Return `runs` samples after one that is thrown away."""
    return [once() for _ in range(runs + 1)][1:]


def timed_cell(expression: str, runs: int, **settings: Any) -> list[float]:
    """Time an expression inside a cell, `runs` times after one for warming up."""
    code = (
        "import time, json\ntimes = []\n"
        f"for n in range({runs + 1}):\n"
        f"    prompts = {expression.split('|')[0]}\n"
        "    began = time.perf_counter()\n"
        f"    found = {expression.split('|')[1]}\n"
        "    times.append(time.perf_counter() - began)\n"
        "    assert all(f == 'ok' for f in found), found[:3]\n"
    ) + SEND.format("json.dumps(times[1:])")
    response, _ = complete(code, **settings)
    try:
        found: list[float] = json.loads(response)
    except ValueError:
        raise RuntimeError(f"its cell did not end well; it answered {response[-300:]!r}") from None
    return found


def status_mb(name: str) -> float:
    """Return a line of this process's status in MB."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name))
    return int(line.split()[1]) / 1024


def cell_round_trip(runs: int, _: str) -> dict[str, Any]:
    """Time one small cell: in a kernel of its own (as ours), and in the host's process."""
    found = {}
    for name, repl in (
        ("ipykernel", IPythonREPL(context_payload="x", kernel_mode="subprocess")),
        ("local", LocalREPL(context_payload="x")),
    ):

        def once(repl: Any = repl) -> float:
            began = time.perf_counter()
            result = repl.execute_code("y = 6 * 7\nprint(y)")
            assert result.stdout.strip() == "42", result
            return (time.perf_counter() - began) * 1e3

        found[name] = samples(runs, once)
        repl.cleanup()
    local = statistics.median(found["local"])
    return {
        "samples": found["ipykernel"],
        "note": f"peer in a kernel process; in the host's own process {local:.2f} ms",
    }


def completion(runs: int, _: str) -> dict[str, Any]:
    """Time a whole completion whose only cell answers."""
    return {"samples": samples(runs, lambda: complete(SEND.format("context"))[1] * 1e3)}


def child_start(runs: int, _: str) -> dict[str, Any]:
    """Time one child rollout with an instant model, seen from the cell that asks."""
    times = timed_cell("['child']|[rlm_query(p) for p in prompts]", runs, max_depth=2)
    return {"samples": [t * 1e3 for t in times]}


def batch_calls(runs: int, _: str) -> dict[str, Any]:
    """Time 200 calls of 50 ms, at the peer's fixed 16 at once, and with that constant changed to 200."""
    Instant.delay = 0.05
    work = "[f'leaf {n} {i}' for i in range(200)]|llm_query_batched(prompts)"
    times = timed_cell(work, runs)
    LMHandler.__init__.__defaults__ = (*LMHandler.__init__.__defaults__[:-1], 200)
    opened = statistics.median(timed_cell(work, runs))
    return {"samples": times, "note": f"peer 16 at once (fixed); patched to 200 at once {opened:.2f} s"}


def batch_large(runs: int, _: str) -> dict[str, Any]:
    """Time 200 prompts of 500 kB with an instant model."""
    work = "[f'leaf {n} {i} ' + context[:500_000] for i in range(200)]|llm_query_batched(prompts)"
    return {"samples": timed_cell(work, runs, context=("The quick brown fox. " * 24_000)[:500_000])}


def children(runs: int, _: str) -> dict[str, Any]:
    """Time 24 children of 50 ms each, at the default 4 at once, and at 24.

    Its children share the process's working folder and change it, so some fail now and then: a run in which one did is no sample.
    """
    Instant.delay = 0.05
    default, failed = _without_failures(runs, 4)
    opened, also = _without_failures(runs, 24)
    at_24 = f"{statistics.median(opened):.2f} s" if opened else "never without a failed child"
    note = f"peer 4 at once (default); 24 at once {at_24}; {failed + also} of its runs had failed children"
    if not default:
        raise RuntimeError(note)
    return {"samples": default, "note": note}


def _without_failures(runs: int, at_once: int) -> tuple[list[float], int]:
    """Return up to `runs` good samples, and how many of the tries for them had a failed child."""
    work, good, failed = "['child'] * 24|rlm_query_batched(prompts)", list[float](), 0
    while len(good) < runs and failed < 5:
        try:
            good += timed_cell(work, 1, max_depth=2, max_concurrent_subcalls=at_once, max_iterations=1)
        except RuntimeError:
            failed += 1
    return good, failed


def context(_runs: int, file: str) -> dict[str, Any]:
    """Load a file of 1 GB as context: seconds to the first model call, memory at the peak, and a substring counted."""
    idle, began = status_mb("VmRSS"), time.perf_counter()
    text = Path(file).read_text(encoding="utf-8", errors="replace")
    read_s = time.perf_counter() - began
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew: reading the file is the caller's affair
    code = "import time\nbegan = time.perf_counter()\nfound = context.count('zebrafinch')\n" + SEND.format(
        "str(time.perf_counter() - began)"
    )
    began = time.perf_counter()
    counted, _ = complete(code, context=text)
    return {
        "samples": [(Instant.first_asked - began) * 1e3],
        "memory": [status_mb("VmHWM") - idle],
        "count_s": [float(counted)],
        "note": f"peer's memory is the peak, its caller's own text included (read in {read_s:.1f} s, not counted)",
    }


def prompts(_runs: int, turns: str) -> dict[str, Any]:
    """Return the peer's prompts at the given turns, each step showing 2,000 characters."""
    wanted = [int(t) for t in turns.split(",")]
    WATCHED.update({3 * t: t for t in wanted})
    script = cell("print('observation ' * 166)")
    complete((script,), max_iterations=max(wanted) + 1)
    return {"samples": [], "texts": dict(Instant.longest)}


CASES = (cell_round_trip, completion, child_start, batch_calls, batch_large, children, context, prompts)


def main() -> None:
    """Measure one case and print its document."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("name", choices=[case.__name__ for case in CASES])
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--file", default="")
    given = options.parse_args()
    library.get_client = lambda _backend, settings: Instant(**settings)
    case = next(case for case in CASES if case.__name__ == given.name)
    print(json.dumps(case(given.runs, given.file)))


if __name__ == "__main__":
    main()
