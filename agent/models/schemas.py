"""Whether a model is held to a JSON Schema by its provider, or only asked for it in the prompt; learnt once per model.

`params.native_schema` says it for certain. Else it is what is known of the model, until a provider refuses the field.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from agent.errors import ContextOverflow, ProviderError, RequestRejected
from agent.models.base import ModelSpec

_FIELD = re.compile(
    r"response[_ ]?format|json[_ ]?schema|structured[_ ]?outputs?|response[_ ]?schema|output_config", re.IGNORECASE
)


class NativeSchema:
    """The memory of one model."""

    def __init__(self, spec: ModelSpec) -> None:
        given = spec.params.get("native_schema")
        self._native = bool(given) if given is not None else None

    def holds(self, known: Callable[[], bool]) -> bool:
        """Say whether a schema goes into the request's own field; asks `known` the first time."""
        if self._native is None:
            self._native = known()
        return self._native

    def was_refused(self, error: ProviderError) -> bool:
        """Say whether an error refuses the field itself, and remember it: from now on the schema stands in the prompt."""
        refused = (
            isinstance(error, RequestRejected)
            and not isinstance(error, ContextOverflow)
            and _FIELD.search(error.message) is not None
        )
        if refused:
            self._native = False
        return refused
