"""Which model does what, as a task names them: a name alone, or a mapping.

What comes out are `ModelSpec` records, the only thing that the models' side knows of a task.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from pydantic import Field, GetPydanticSchema, field_validator, model_validator
from pydantic_core import core_schema

from agent.fields import Record, Text
from agent.models.base import ModelSpec


def _model_schema(_source: Any, handler: Any) -> core_schema.CoreSchema:
    return core_schema.no_info_after_validator_function(lambda entry: entry.spec(), handler(ModelEntry))


Spec = Annotated[ModelSpec, GetPydanticSchema(_model_schema)]


class Price(Record):
    """What a model costs, in USD per million tokens."""

    input: float = Field(ge=0)
    """USD per million prompt tokens."""
    output: float = Field(ge=0)
    """USD per million reply tokens."""


class ModelEntry(Record):
    """A model: its name alone, or this mapping."""

    model: Text
    """A litellm name such as `openai/gpt-5-mini`, or `offline/…`, `local/…`."""
    api_base: Text | None = None
    """Address of an OpenAI-compatible server."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key; the key itself never stands in a task."""
    params: dict[str, Any] = {}
    """Handed to the model as they are (temperature, reasoning_effort, …)."""
    price: Price | None = None
    """The price, where litellm does not know it; an unknown price is unknown, not 0."""
    concurrency: int | None = Field(default=None, ge=1)
    """Requests at once to this model; default: `limits.concurrency`."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        if isinstance(value, ModelSpec):
            return msgspec.structs.asdict(value)
        return {"model": value} if isinstance(value, str) else value

    @field_validator("api_key_env")
    @classmethod
    def _a_name(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", value):
            raise ValueError("must be the NAME of an environment variable, never the key itself")
        return value

    def spec(self) -> ModelSpec:
        """Give the record that the models' factory takes."""
        price = self.price.model_dump() if self.price else None
        return ModelSpec(self.model, self.api_base, self.api_key_env, dict(self.params), price, self.concurrency)


def _default_fold(data: dict[str, Any]) -> ModelSpec:
    offline = data["root"].model.startswith("offline/")
    return ModelSpec("offline/digest") if offline else data["sub"]


class Models(Record):
    """Which model does what. A bare text is the root's name."""

    root: Spec
    """Writes the cells."""
    sub: Spec = Field(default_factory=lambda data: data["root"])
    """Answers `llm_query` and runs child rollouts; default: the root's."""
    fold: Spec = Field(default_factory=_default_fold)
    """Writes folds and summaries; default: the sub's, or `offline/digest` when the root is offline."""
    fallbacks: tuple[Spec, ...] = ()
    """Tried in this order when a model is unavailable."""

    def names(self, spec: ModelSpec) -> bool:
        """Say whether the task names this model; else a cell chose it, and that it cannot be had is the cell's mistake."""
        return spec in (self.root, self.sub, self.fold, *self.fallbacks)

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"root": value} if isinstance(value, (str, ModelSpec)) else value
