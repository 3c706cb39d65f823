"""What `RLM(...)` is given, turned into the models, limits and tools that a run works with.

Both ways of saying it are understood: ours (`model=`, `limits=`) and that of the paper's library (`backend=`, `backend_kwargs=`,
`max_iterations=`, …), so that its users can switch by changing the import.
"""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from pydantic import ValidationError

from agent.errors import UsageError
from agent.mistakes import mistakes_of
from agent.models.base import ModelSpec
from agent.task import Limits, Sandbox, Task
from agent.taskmodels import Models
from agent.tools import ToolBox, refuse_names, tools_of

#: Where the paper's library says one thing and litellm another.
_BACKENDS = {
    "openai": "openai",
    "anthropic": "anthropic",
    "gemini": "gemini",
    "azure_openai": "azure",
    "openrouter": "openrouter",
    "vllm": "openai",
    "portkey": "openai",
    "vercel": "vercel_ai_gateway",
    "litellm": "",
}
#: Its options that say nothing here: there is one sandbox, nothing is compacted because nothing grows.
_WITHOUT_MEANING = (
    "environment",
    "environment_kwargs",
    "logger",
    "compaction",
    "compaction_threshold_pct",
    "orchestrator",
    "depth",
)


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All options of `RLM`, as its docstring explains them."""

    model: str | ModelSpec | None = None
    sub_model: str | ModelSpec | None = None
    model_params: dict[str, Any] = {}
    sub_model_params: dict[str, Any] = {}
    fallbacks: tuple[str | ModelSpec, ...] = ()
    workspace: str | Path | None = None
    limits: dict[str, Any] = {}
    sandbox: str | dict[str, Any] = "auto"
    reuse: bool = False
    persistent: bool = False
    route: str = "rlm"
    custom_tools: dict[str, Any] | None = None
    custom_sub_tools: dict[str, Any] | None = None
    custom_system_prompt: str | None = None
    user_prologue: str | None = None
    verbose: bool = False
    watch: Callable[..., Any] | None = None
    warm: tuple[Path, ...] = ()
    backend: str | None = None
    backend_kwargs: dict[str, Any] | None = None
    other_backends: list[str] | None = None
    other_backend_kwargs: list[dict[str, Any]] | None = None
    sampling_args: dict[str, Any] | None = None
    sub_sampling_args: dict[str, Any] | None = None
    max_depth: int | None = None
    max_iterations: int | None = None
    max_budget: float | None = None
    max_timeout: float | None = None
    max_tokens: int | None = None
    max_errors: int | None = None
    max_concurrent_subcalls: int | None = None
    on_iteration_start: Callable[..., Any] | None = None
    on_iteration_complete: Callable[..., Any] | None = None
    on_subcall_start: Callable[..., Any] | None = None
    on_subcall_complete: Callable[..., Any] | None = None

    def task(self) -> Task:
        """Return the task that says the same; raises `UsageError` with what is wrong."""
        if self.route not in ("rlm", "plain", "auto"):
            raise UsageError(f"RLM: route={self.route!r} is unknown", "rlm (explore), plain (one call), auto (by size)")
        root = self._root()
        sub = self._sub(root)
        try:
            sandbox = Sandbox.model_validate({"kind": self.sandbox} if isinstance(self.sandbox, str) else self.sandbox)
            return Task(
                name="rlm",
                goal="Answer questions over their context.",
                models=Models(root=root, sub=sub, fallbacks=tuple(map(_spec, self.fallbacks))),
                limits=self._limits(),
                sandbox=sandbox,
                reuse=self.reuse,
            )
        except ValidationError as error:
            first = min(mistakes_of(error, Task))
            raise UsageError(f"RLM: {first.message}", "`rlm-agent schema` lists limits and sandbox") from error

    def toolbox(self) -> ToolBox:
        """Return the tools; raises `UsageError` that names all reserved names and all that cannot be passed on."""
        given, below = self.custom_tools or {}, self.custom_sub_tools
        refuse_names([*given, *(name for name in below or {} if name not in given)])
        tools, values = tools_of(given, "all" if below is None else "root")
        if below:
            more, beside = tools_of(below, "sub")
            tools, values = [*tools, *more], {**beside, **values}
        return ToolBox(tools, values)

    def _limits(self) -> Limits:
        said = {
            "depth": None if self.max_depth is None else max(0, self.max_depth - 1),
            "steps": self.max_iterations,
            "cost_usd": self.max_budget,
            "wall_time": self.max_timeout,
            "tokens": self.max_tokens,
            "errors": self.max_errors,
            "concurrency": self.max_concurrent_subcalls,
        }
        try:
            return Limits.model_validate({**{k: v for k, v in said.items() if v is not None}, **self.limits})
        except ValidationError as error:
            first = min(mistakes_of(error, Limits))
            raise UsageError(f"limits: {first.message}", "`rlm-agent schema` lists the limits") from error

    def _root(self) -> ModelSpec:
        if self.model is not None:
            return _spec(self.model, self.model_params)
        if self.backend is None and not self.backend_kwargs:
            raise UsageError("RLM: no model is named", "RLM(model='openai/gpt-5-mini'), or offline: 'offline/explorer'")
        return _from_backend(self.backend or "openai", self.backend_kwargs or {}, self.sampling_args)

    def _sub(self, root: ModelSpec) -> ModelSpec:
        if self.sub_model is not None:
            return _spec(self.sub_model, self.sub_model_params)
        if self.other_backends:
            if len(self.other_backends) != 1:
                raise UsageError("RLM: other_backends takes exactly one backend", "name the one that answers sub-calls")
            return _from_backend(self.other_backends[0], (self.other_backend_kwargs or [{}])[0], self.sub_sampling_args)
        if self.sub_sampling_args:
            return msgspec.structs.replace(root, params={**root.params, **self.sub_sampling_args})
        return root


def read_options(given: Mapping[str, Any]) -> Options:
    """Check the names of `RLM`'s options; raises `UsageError` with the nearest name for one that is unknown."""
    given = dict(given)
    for name in [name for name in _WITHOUT_MEANING if name in given]:
        if given.pop(name) is not None:
            warnings.warn(f"RLM({name}=…) has no meaning here and is passed over", UserWarning, stacklevel=3)
    for name in given:
        if name not in Options.__struct_fields__:
            near = difflib.get_close_matches(name, Options.__struct_fields__, 1)
            raise UsageError(f"RLM: unknown option {name!r}" + (f", did you mean {near[0]!r}?" if near else ""))
    return Options(**given)


def _spec(model: str | ModelSpec, params: Mapping[str, Any] | None = None) -> ModelSpec:
    if isinstance(model, ModelSpec):
        return msgspec.structs.replace(model, params={**model.params, **(params or {})})
    return ModelSpec(model, params=dict(params or {}))


def _from_backend(backend: str, kwargs: Mapping[str, Any], sampling: Mapping[str, Any] | None) -> ModelSpec:
    if backend not in _BACKENDS:
        raise UsageError(f"RLM: unknown backend {backend!r}", f"known are {', '.join(_BACKENDS)}; or use model=")
    name = kwargs.get("model_name")
    if not name:
        raise UsageError("RLM: backend_kwargs has no model_name", "backend_kwargs={'model_name': 'gpt-5-mini'}")
    base = kwargs.get("base_url") or kwargs.get("api_base")
    prefix = _BACKENDS[backend]
    known = ("model_name", "base_url", "api_base", "api_key", "sampling_args")
    params = {key: value for key, value in kwargs.items() if key not in known}
    params |= {**(kwargs.get("sampling_args") or {}), **(sampling or {})}
    model = f"{prefix}/{name}" if prefix else str(name)
    return ModelSpec(model, base, _variable_with(kwargs.get("api_key")), params)


def _variable_with(key: str | None) -> str | None:
    """Put a key that was given as such into a variable of this process, where models look for keys; it goes nowhere else."""
    if not key:
        return None
    taken = [name for name in os.environ if name.startswith("RLM_AGENT_GIVEN_KEY_")]
    for name in taken:
        if os.environ[name] == key:
            return name
    name = f"RLM_AGENT_GIVEN_KEY_{len(taken) + 1}"
    os.environ[name] = key
    return name
