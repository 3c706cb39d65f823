"""What litellm knows of a model's window and price, read from the table in its wheel without importing it.

The import takes seconds; the table, some four megabytes of JSON, takes ten milliseconds and is read once.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import msgspec

from agent.models.base import ModelSpec

_TABLE = "model_prices_and_context_window_backup.json"


class Entry(msgspec.Struct, frozen=True):
    """One row: the window in tokens, prices in USD per token. Some rows hold words where others hold numbers."""

    max_input_tokens: float | str | None = None
    input_cost_per_token: float | str | None = None
    output_cost_per_token: float | str | None = None
    litellm_provider: str | None = None


def context_window(spec: ModelSpec) -> int | None:
    """Return how many tokens a model's prompt may have, None when nobody knows."""
    if spec.model.startswith("local/"):
        from agent.models.local import WINDOW

        window = spec.params.get("window", WINDOW)
        return window if isinstance(window, int) else None
    entry = find_entry(spec.model)
    window = entry.max_input_tokens if entry else None
    return int(window) if isinstance(window, (int, float)) and window > 0 else None


def cost_at(price: dict[str, float], tokens_in: int, tokens_out: int) -> float:
    """Return the cost in USD at a spec's own `price`."""
    return (tokens_in * price.get("input", 0.0) + tokens_out * price.get("output", 0.0)) / 1e6


def most_cost(spec: ModelSpec, tokens_in: int, tokens_out: int) -> float:
    """Return what a call of this size costs at most, in USD, for a reservation; 0 where nobody knows the price."""
    if spec.price:
        return cost_at(spec.price, tokens_in, tokens_out)
    entry = find_entry(spec.model)
    prices = (entry.input_cost_per_token, entry.output_cost_per_token) if entry is not None else (None, None)
    read, write = (price if isinstance(price, (int, float)) else 0.0 for price in prices)
    return tokens_in * read + tokens_out * write


def find_entry(model: str) -> Entry | None:
    """Return the row of `provider/name`, which the table holds under its whole name or, of that provider, under the short one."""
    table = _table()
    provider, _, name = model.partition("/")
    if model in table:
        return table[model]
    entry = table.get(name)
    return entry if entry is not None and entry.litellm_provider in (provider, f"{provider}_ai", None) else None


@cache
def _table() -> dict[str, Entry]:
    package = importlib.util.find_spec("litellm")
    for folder in (package.submodule_search_locations if package else None) or []:
        try:
            return msgspec.json.decode((Path(folder) / _TABLE).read_bytes(), type=dict[str, Entry])
        except (OSError, msgspec.DecodeError):  # a release that keeps it elsewhere: then nothing is known
            continue
    return {}
