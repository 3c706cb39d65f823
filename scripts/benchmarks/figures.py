"""A figure: the median of its samples, what it should reach, and what the peer needs for the same work."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Sequence

import msgspec


class Figure(msgspec.Struct, frozen=True):
    """One line of a bench; `met` is None where nothing is asked. All values are in `unit`, and less is better.

    `load` is what the computer was doing besides: the mean of processes that wanted to run, over the last minute.
    """

    bench: str
    name: str
    value: float
    unit: str
    target: float | None
    met: bool | None
    min: float
    max: float
    runs: int
    load: float
    peer: str | None = None
    peer_value: float | None = None
    note: str = ""


class Peer(msgspec.Struct, frozen=True):
    """What another program needed for the same work."""

    name: str
    value: float
    note: str = ""


def figure(
    bench: str,
    name: str,
    unit: str,
    samples: Sequence[float],
    target: float | None = None,
    peer: Peer | None = None,
    note: str = "",
) -> Figure:
    """Return the figure of these samples; raises ValueError when there are none."""
    if not samples:
        raise ValueError(f"{bench} {name}: there is nothing to take the median of")
    value = statistics.median(samples)
    notes = [note, peer.note if peer else ""]
    return Figure(
        bench=bench,
        name=name,
        value=_short(value),
        unit=unit,
        target=None if target is None else _short(target),
        met=None if target is None else value <= target,
        min=_short(min(samples)),
        max=_short(max(samples)),
        runs=len(samples),
        load=round(os.getloadavg()[0], 1),
        peer=peer.name if peer else None,
        peer_value=_short(peer.value) if peer else None,
        note="; ".join(n for n in notes if n),
    )


def line(made: Figure) -> str:
    """Return the figure as one line of JSON."""
    return json.dumps(msgspec.to_builtins(made), ensure_ascii=False)


def table(figures: Sequence[Figure]) -> str:
    """Return the figures as a table for people."""
    rows: list[tuple[str, ...]] = [("figure", "value", "range", "target", "", "peer", "factor", "load")]
    rows += [_row(f) for f in figures]
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _row(made: Figure) -> tuple[str, ...]:
    unit = made.unit
    factor = made.peer_value / made.value if made.peer_value and made.value > 0 else None
    return (
        made.name,
        f"{made.value:g} {unit}",
        f"{made.min:g}-{made.max:g} ({made.runs})",
        f"<= {made.target:g}" if made.target is not None else "",
        {True: "met", False: "MISSED", None: ""}[made.met],
        f"{made.peer} {made.peer_value:g}" if made.peer_value is not None else "",
        f"{factor:.3g} x" if factor else "",
        f"{made.load:g}",
    )


def _short(value: float) -> float:
    """Round to four significant digits."""
    return float(f"{value:.4g}")
