"""`RLM`: questions over contexts from Python, by the same loop as a task's run, without a task file and without a git tree.

Each completion is a root rollout in one journal, which lies in a temporary folder or in a given one. In a given folder, a
completion that was cut off by a crash goes on when it is asked again: what it had paid for is not paid twice.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agent import completion as results
from agent.budget import grant_of
from agent.completion import Completion
from agent.context.manifest import Manifest
from agent.errors import BudgetSpent
from agent.loop import Loop
from agent.outcome import Outcome
from agent.plainly import answer_plainly, fits
from agent.rlmcontext import Material, material_of
from agent.rlmopened import Opened
from agent.rlmoptions import Options, read_options
from agent.runtime import in_thread
from agent.scope import Scope
from state.records import Spend


class RLM:
    """A recursive language model over contexts of any size.

    `model` and `sub_model` are litellm names (`openai/gpt-5`), `offline/…` or `local/…`; `model_params` and `sub_model_params` go
    to them as they are. `limits` are those of task.yaml; `workspace` is a folder for the journal (default: a temporary one);
    `sandbox` is auto, bubblewrap, landlock or none; `reuse` answers equal sub-calls once; `persistent` keeps variables,
    contexts and histories from one completion to the next. `route` is rlm (explore by cells, always), plain (one call) or
    auto (plain where the context is short); `warm` names the files that completions will be over, where they are known.
    `custom_tools` are functions or values that cells find, `custom_sub_tools` those of sub-calls and children. The options
    of the paper's library (`backend`, `backend_kwargs`, `max_depth`, `max_iterations`, `max_budget`, `max_timeout`,
    `max_tokens`, `max_errors`, …) are understood too.
    Raises `UsageError` for options that make no sense.
    """

    def __init__(self, model: Any = None, sub_model: Any = None, **options: Any) -> None:
        self._options: Options = read_options({"model": model, "sub_model": sub_model, **options})
        self._task, self._toolbox = self._options.task(), self._options.toolbox()
        self._opened = Opened(self._options, self._task, self._toolbox)
        self._turn = threading.RLock()
        self._finalizer = weakref.finalize(self, self._opened.close)
        try:
            self._opened.warm(tuple(path.absolute() for path in self._options.warm))
        except BaseException:
            self.close()
            raise

    def completion(
        self, prompt: Any, root_prompt: str | None = None, *, question: str | None = None, context: Any = None
    ) -> Completion:
        """Answer a question over a context, and return the answer with its outcome and spend.

        With `question` (or `root_prompt`), `prompt` is the context: a text, list or dict, or a path or list of paths, which are
        looked at in place. With `context`, `prompt` is the question. Alone, `prompt` is both. Raises `LimitExceeded` when a
        `max_…` option ends it, `ProviderError` when a model cannot be had.
        """
        material = material_of(prompt, question or root_prompt, context, self._options.user_prologue or "")
        if not self._options.persistent:
            return self._complete(material)
        with self._turn:
            return self._complete(material)

    async def acompletion(self, prompt: Any, root_prompt: str | None = None, **more: Any) -> Completion:
        """Do what `completion` does without blocking the event loop; many may run at once."""
        return await asyncio.to_thread(self.completion, prompt, root_prompt, **more)

    @property
    def manifest(self) -> Manifest:
        """The files that completions were asked over, and those that were refused."""
        manifest: Manifest = self._opened.runtime.manifest
        return manifest

    def close(self) -> None:
        """End what is running for this object, as a crash would; a temporary folder is removed.

        A completion that runs on another thread returns with its answer so far, once a tool that it waits for has returned.
        A second call does nothing.
        """
        if self._opened.broker.is_own_thread():  # a callback: what it would wait for waits for it
            in_thread(self._finalizer, "closing")
        else:
            self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _t: type[BaseException] | None, _e: BaseException | None, _tb: TracebackType | None) -> None:
        self.close()

    def _complete(self, material: Material) -> Completion:
        with self._opened.working():
            done = self._completed(material)
        self._raise_for_limit(done)
        return done

    def _completed(self, material: Material) -> Completion:
        runtime, began = self._opened.runtime, time.monotonic()
        self._opened.know(material.manifest)
        rollout, fresh = self._opened.rollout_for(material, self._options.persistent)
        earlier = self._opened.earlier(rollout.id) if self._options.persistent else {}
        spent, worked = (Spend(), 0.0) if fresh else self._opened.used(rollout.id)
        budget = runtime.budget.child(grant_of(self._task.limits), spent, worked, by_limits=True)
        place = self._opened.take_place(_shown(material, earlier))
        scope = Scope(
            runtime,
            self._opened.broker,
            rollout,
            self._task.models.root,
            budget,
            place,
            system=self._options.custom_system_prompt or "",
            persistent=self._options.persistent,
            frame=earlier,
        )
        try:
            outcome = self._work(scope)
        except BudgetSpent as error:
            outcome = Outcome("budget", error.message)
        except BaseException as error:
            self._opened.in_progress.discard(rollout.id)  # it goes on when it is asked again
            if not isinstance(error, Exception) or not self._opened.closed:
                raise
            outcome = Outcome("stopped", "the RLM was closed meanwhile", self._opened.so_far(rollout.id))
        finally:
            budget.end()
            self._opened.leave_place(place)
        return self._opened.end(rollout, outcome, time.monotonic() - began, material)

    def _work(self, scope: Scope) -> Outcome:
        route = self._options.route
        plain = route == "plain" or (route == "auto" and fits(scope))
        return answer_plainly(scope) if plain else Loop(scope).run()

    def _raise_for_limit(self, done: Completion) -> None:
        """Raise as the paper's library does when a limit that was given by its name is what ended the completion."""
        options, kind, why = self._options, done.outcome.kind, done.outcome.reason
        for given, ended, words, error in (
            (options.max_budget, "budget", ("usd", "cost_usd"), results.BudgetExceededError),
            (options.max_timeout, "budget", ("seconds", "wall_time"), results.TimeoutExceededError),
            (options.max_tokens, "budget", ("tokens",), results.TokenLimitExceededError),
            (options.max_errors, "stuck", ("failed",), results.ErrorThresholdExceededError),
        ):
            if given is not None and kind == ended and any(word in why for word in words):
                raise error(why, done)


def _shown(material: Material, earlier: dict[str, Any]) -> tuple[Path, ...]:
    """Return the files that a completion's REPL sees: those of its own context, and of the earlier ones that it finds."""
    named = (Path(path) for frame in earlier.get("contexts", {}).values() for path in frame.get("paths", ()))
    return tuple(dict.fromkeys([*material.shown_paths, *(path for path in named if path.exists())]))
