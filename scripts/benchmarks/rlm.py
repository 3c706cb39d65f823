"""`bench rlm`: what a recursive language model costs besides its model, each figure with the peer's beside it.

Both sides do the same work with a model that answers at once (or after 50 ms, where that is said), in cells that time
themselves, so that what is measured is the program. The first run of each is thrown away.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks import drive, material, peers
from benchmarks.figures import Figure, Peer, figure

NAME = "rlm"
LONG = 10_000


class Options(msgspec.Struct, frozen=True):
    """How often, and with what beside it; `long` adds what takes minutes."""

    runs: int = 7
    peers: bool = True
    long: bool = False

    def rlms(self, name: str, runs: int = 0, file: str = "", key: str = "samples") -> Peer | None:
        """Return the peer's figure, or None when peers are left out or this one fails, which stderr says."""
        try:
            return peers.rlms(name, runs or self.runs, file, key) if self.peers else None
        except RuntimeError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return None


def cell_round_trip(options: Options, folder: Path) -> list[Figure]:
    """Time one small cell in a sandboxed process, from the host."""
    from agent.repl.sandbox import choose

    times = []
    with drive.repl(folder) as repl:
        for n in range(options.runs * 20 + 1):
            began = time.perf_counter()
            result = repl.run(["y = 6 * 7\nprint(y)"], n + 1, drive.NoCalls(), 60.0, 8192)
            times.append((time.perf_counter() - began) * 1e3)
            assert result.output.strip() == "42", result
    peer = options.rlms("cell_round_trip", options.runs * 20)
    return [figure(NAME, "cell_round_trip", "ms", times[1:], 2, peer, f"in {choose('auto').kind}")]


def completion(options: Options, folder: Path) -> list[Figure]:
    """Time whole completions whose only cell answers: with an open `RLM`, and with a new one each time."""
    script = drive.entries(drive.SEND.format("'ok'"))
    with drive.completions(folder, script) as once:
        warm = [once().seconds * 1e3 for _ in range(options.runs + 1)][1:]
    peer = options.rlms("completion")
    cold = [_cold(folder, script) * 1e3 for _ in range(options.runs + 1)][1:]
    return [
        figure(NAME, "completion", "ms", warm, 60, peer, "with an open RLM"),
        figure(NAME, "completion_new_rlm", "ms", cold, None, peer, "a new RLM each time, opened and closed"),
    ]


def _cold(folder: Path, script: list[dict[str, object]]) -> float:
    began = time.perf_counter()
    with drive.completions(folder, script) as once:
        once()
    return time.perf_counter() - began


def child_start(options: Options, folder: Path) -> list[Figure]:
    """Time one whole child rollout with an instant model, seen from the cell that asks."""
    times = _in_cell(folder, options.runs * 3, "['child %d' % n]", "[rlm_query(p) for p in prompts]")
    note = "start, one step and end of a child"
    return [figure(NAME, "child_start", "ms", [t * 1e3 for t in times], 30, options.rlms("child_start"), note)]


def batch_calls(options: Options, folder: Path) -> Iterator[Figure]:
    """Time a batch of 200 calls of 50 ms, journaled: all at once, and at the peer's 16 at once."""
    prompts, ask = "[f'leaf {n} {i}' for i in range(200)]", "llm_query_batched(prompts)"
    peer = options.rlms("batch_calls")
    for name, at_once, target in (("batch_200_calls", 200, 0.15), ("batch_200_calls_16_at_once", 16, None)):
        times = _in_cell(folder, options.runs, prompts, ask, delay=0.05, concurrency=at_once)
        note = f"limits.concurrency: {at_once}; 50 ms a call, journaled"
        yield figure(NAME, name, "s", times, target, peer, note)


def batch_large(options: Options, folder: Path) -> list[Figure]:
    """Time a batch of 200 prompts of 500 kB, with a model that answers at once."""
    prompts = "[f'leaf {n} {i} ' + text for i in range(200)]"
    setup = "text = ('The quick brown fox. ' * 24_000)[:500_000]"
    runs = max(2, options.runs // 2)
    times = _in_cell(folder, runs, prompts, "llm_query_batched(prompts)", setup=setup, concurrency=200)
    note = "limits.concurrency: 200; journaled"
    return [figure(NAME, "batch_200_prompts_of_500_kB", "s", times, 1, options.rlms("batch_large", runs), note)]


def children(options: Options, folder: Path) -> list[Figure]:
    """Time 24 children of 50 ms of model time each, started by one call."""
    prompts = "[f'child {n} {i}' for i in range(24)]"
    times = _in_cell(folder, options.runs, prompts, "rlm_query_batched(prompts)", delay=0.05, concurrency=200)
    peer = options.rlms("children", min(options.runs, 3))
    return [figure(NAME, "24_children", "s", times, 0.4, peer, "limits.concurrency: 200")]


def context(options: Options, folder: Path) -> list[Figure]:
    """Measure a context of 1 GB in whole completions: until a cell has seen both ends, and memory while it searches it all."""
    big, runs = material.one_gigabyte(), max(3, options.runs // 2)
    loaded = peers.ask("context", 1, str(big)) if options.peers else {}
    ready, excess = material.ready(folder, big, options.runs * 2)
    looks = material.looks(folder, big, runs)
    seen = "listing it, and a cell's first look at both ends"
    over = "a whole completion that looks at both ends, above the same over one line"
    high = "host + REPL, highest while a cell searches it all, above the same over one line"
    return [
        _beside(loaded, "samples", "context_1_GB_ready", "ms", ready, 50, seen),
        figure(NAME, "context_1_GB_completion", "ms", excess, None, None, over),
        _beside(loaded, "memory", "context_1_GB_memory", "MB", [x.memory_mb for x in looks], 64, high),
        _beside(
            loaded, "count_s", "context_1_GB_search", "s", [x.search_s for x in looks], None, "a rare word, in a cell"
        ),
    ]


def _beside(
    loaded: dict[str, object], key: str, name: str, unit: str, times: list[float], target: float | None, note: str
) -> Figure:
    found = loaded.get(key)
    peer = Peer(peers.RLMS, found[0], str(loaded.get("note", ""))) if isinstance(found, list) else None
    return figure(NAME, name, unit, times, target, peer, note)


def search(options: Options, folder: Path) -> Iterator[Figure]:
    """Time searches of 1 GB in a cell, all matches, then with each one's line number, beside ripgrep's on the same file."""
    big, runs = material.one_gigabyte(), max(3, options.runs // 2)
    program = peers.ripgrep() if options.peers else ""
    for name, pattern in material.PATTERNS.items():
        ours, theirs = material.search(folder, big, pattern, runs, program)
        note = f"{pattern} has {ours[0].matches} matches"
        if theirs and theirs[0].matches != ours[0].matches:
            note += f", ripgrep finds {theirs[0].matches}"
        for lines, beside in (("", "-N -o"), ("_with_lines", "-n -o")):
            mine, peers_own = ([x.seconds if lines else x.bare for x in side] for side in (ours, theirs))
            peer = Peer("ripgrep 15", statistics.median(peers_own), f"rg {beside}") if theirs else None
            target = 1.5 * peer.value if peer else None
            yield figure(NAME, f"search_1_GB_{name}{lines}", "s", mine, target, peer, note)


def prompts(options: Options, folder: Path) -> list[Figure]:
    """Count the tokens of the root's prompt at steps 100 and (with `long`) 10,000, each step showing 2,000 characters."""
    from agent.tokens import count_tokens

    made = []
    for last, target in ((100, 7000), (LONG, 8000)) if options.long else ((100, 7000),):
        script = [{"reply": drive.cell("print('observation ' * 166)"), "forever": True}]
        sizes = drive.steps(folder, script, last)
        texts = peers.ask("prompts", 1, str(last))["texts"] if options.peers and last < LONG else {}
        peer = Peer(peers.RLMS, count_tokens(texts[str(last)]), "the peer's keeps all") if texts else None
        note = f"the largest of the 20 before it, by agent.tokens, reply's reserve included; ever {max(sizes)}"
        made.append(figure(NAME, f"prompt_at_step_{last}", "tokens", [max(sizes[-20:])], target, peer, note))
    return made


CASES: tuple[Callable[[Options, Path], Iterable[Figure]], ...] = (
    cell_round_trip, completion, child_start, batch_calls, batch_large, children, context, search, prompts,
)  # fmt: skip


def measure(options: Options, only: Sequence[str], said: Callable[[Figure], None]) -> list[str]:
    """Measure the cases asked for (all when none is), telling each figure; returns what failed, in words."""
    failed = []
    for case in CASES:
        if only and case.__name__ not in only:
            continue
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            try:
                for made in case(options, Path(folder)):
                    said(made)
            except Exception as error:
                failed.append(f"{case.__name__}: {type(error).__name__}: {error}")
    return failed


def _in_cell(
    folder: Path, runs: int, prompts: str, ask: str, setup: str = "", delay: float = 0.0, concurrency: int = 32
) -> list[float]:
    """Run `ask` over `prompts` in a cell, `runs` times after one for warming up; returns the seconds that it measured."""
    code = f"""import time, json
{setup}
times = []
for n in range({runs + 1}):
    prompts = {prompts}
    began = time.perf_counter()
    found = {ask}
    times.append(time.perf_counter() - began)
    assert all(f == 'ok' for f in found), [f for f in found if f != 'ok'][:3]
del prompts, found
""" + drive.SEND.format("json.dumps(times[1:])")
    with drive.completions(folder, drive.entries(code, delay), concurrency=concurrency) as once:
        answer: list[float] = json.loads(once().answer)
    return answer
