"""Progress of a run: a live line in a terminal, plain lines where output is piped. Narration only; nothing depends on it."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

_SHOWN = 110
_LARGE = 40  # sub-calls of a batch whose progress is worth a line


class Progress:
    """Turns what a run tells into lines on stderr, and a line that is kept up to date in a terminal."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._live: Any = None
        self._began = time.monotonic()
        self._state: dict[str, Any] = {
            "step": 0,
            "prompt": 0,
            "calls": 0,
            "tokens": 0,
            "usd": 0.0,
            "unpriced": False,
            "doing": "starting",
        }

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                get_renderable=self._line, console=Console(stderr=True), refresh_per_second=4, transient=True
            )
            self._live.start()
        return self

    def __exit__(self, _t: type[BaseException] | None, _e: BaseException | None, _tb: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def watch(self, kind: str, /, **facts: Any) -> None:
        """Take one thing that a run tells."""
        handler = getattr(self, f"_on_{kind}", None)
        if handler is not None:
            handler(facts)

    def _say(self, text: str) -> None:
        if self._quiet:
            return
        try:
            if self._live is not None:
                from rich.text import Text

                self._live.console.print(Text(text))
            else:
                print(text, file=sys.stderr, flush=True)
        except (OSError, ValueError):  # whoever read it has gone (`2>&1 | head`): the run goes on in silence
            self._quiet = True

    def _line(self) -> Any:
        from rich.text import Text

        s = self._state
        price = f"${s['usd']:.4f}" + (" and calls of unknown price" if s["unpriced"] else "")
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        return Text(
            f" step {s['step']} · {s['doing']} · {s['calls']} calls, {s['tokens']:,} tokens, {price} · "
            f"prompt {s['prompt']:,} · {minutes}:{seconds:02d}",
            style="bold",
        )

    def _on_opened(self, facts: dict[str, Any]) -> None:
        self._say(f"run {facts['run']} in {facts['workspace']}")

    def _on_resumed(self, facts: dict[str, Any]) -> None:
        how = {"rerun": "its cell runs again against recorded calls", "plan": "continuing"}
        self._say(f"resumed at step {facts['step']}: {how.get(facts['action'], 'continuing')}")

    def _on_step(self, facts: dict[str, Any]) -> None:
        if facts["depth"] == 0:
            self._state.update(step=facts["step"], prompt=facts["prompt_tokens"], doing="asking the model")

    def _on_reply(self, facts: dict[str, Any]) -> None:
        if facts["depth"] == 0:
            from agent.repl.cells import parse_thought

            self._state["doing"] = "running a cell"
            self._say(f"step {facts['step']:>3}  {_short(parse_thought(facts['text']))}")

    def _on_observation(self, facts: dict[str, Any]) -> None:
        if facts["depth"] == 0:
            self._state["doing"] = "planning"
            lines = [line for line in facts["text"].splitlines() if line.strip()]
            mark = "!" if facts["failed"] else "→"
            self._say(f"          {mark} {_short(lines[-1] if facts['failed'] else lines[0]) if lines else ''}")

    def _on_journal_behind(self, facts: dict[str, Any]) -> None:
        self._say(
            "          ! the end of the journal is lost: its steps are done again, and their calls are paid again\n"
            f"            what they had made is kept under {facts['rescue']}"
        )

    def _on_call(self, facts: dict[str, Any]) -> None:
        self._state["tokens"] += facts["tokens"]
        self._state["usd"] += facts["usd"] or 0.0
        self._state["unpriced"] |= facts["ok"] and facts["usd"] is None
        self._state["calls"] += 1

    def _on_batch(self, facts: dict[str, Any]) -> None:
        done, failed, total = facts["done"], facts["failed"], facts["total"]
        if total > 1:
            self._state["doing"] = f"sub-calls {done} of {total}" + (f", {failed} failed" if failed else "")
            if total >= _LARGE and done % (total // 4 or 1) == 0:
                self._say(f"          … {done} of {total} sub-calls" + (f", {failed} failed" if failed else ""))

    def _on_tool(self, facts: dict[str, Any]) -> None:
        self._state["doing"] = f"running the tool {facts['name']}"

    def _on_commit(self, facts: dict[str, Any]) -> None:
        self._say(f"          ✓ commit {facts['sha'][:8]}  {_short(facts['summary'])}")

    def _on_fold(self, facts: dict[str, Any]) -> None:
        self._say(f"          ≡ folded steps {facts['first']}-{facts['last']}")

    def _on_fold_failed(self, facts: dict[str, Any]) -> None:
        self._say(f"          ! fold of steps {facts['first']}-{facts['last']} was not used: {facts['why']}")

    def _on_waiting(self, facts: dict[str, Any]) -> None:
        self._state["doing"] = f"waiting {facts['seconds']:.0f} s for {facts['model']}"
        self._say(f"          … {facts['model']}: {_short(facts['why'])}; next try in {facts['seconds']:.1f} s")

    def _on_fallback(self, facts: dict[str, Any]) -> None:
        self._say(f"          ! {facts['model']} cannot be had ({_short(facts['why'])}); asking the next one")

    def _on_repl_died(self, facts: dict[str, Any]) -> None:
        self._say(f"          ! {facts['why']}; rolled back")

    def _on_rescued(self, facts: dict[str, Any]) -> None:
        self._say(f"          ! unfinished changes to {facts['files']} files saved as {facts['ref']}")

    def _on_said(self, facts: dict[str, Any]) -> None:
        self._say(f"          « {_short(facts['text'])}")

    def _on_committed_outside(self, facts: dict[str, Any]) -> None:
        self._say(f"          ! someone committed on {facts['branch']} ({facts['after'][:8]}); going on from there")

    def _on_history_rewritten(self, facts: dict[str, Any]) -> None:
        self._say(f"          ! someone rewrote {facts['branch']}; what it was is kept as {facts['rescue']}")

    def _on_checked_out(self, facts: dict[str, Any]) -> None:
        self._say(f"          ! someone checked out {facts['branch']}; going on there")

    def _on_attached(self, facts: dict[str, Any]) -> None:
        self._say(f"          ! no branch was checked out; back on {facts['branch']}")

    def _on_packing_failed(self, facts: dict[str, Any]) -> None:
        self._say(f"          ! the repository could not be packed: {_short(facts['why'])}; it is tried again")

    def _on_accepting(self, _facts: dict[str, Any]) -> None:
        self._state["doing"] = "checking the answer"

    def _on_child(self, facts: dict[str, Any]) -> None:
        self._state["doing"] = f"child rollout at depth {facts['depth']}"

    def _on_limits_changed(self, facts: dict[str, Any]) -> None:
        self._say(f"          limits changed: {facts['changed']}")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"
