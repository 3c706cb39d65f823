"""Sums over a run's steps, folds and calls, for whoever wants to know how it folds: aggregated in SQL, whatever their number."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, text


def prompt_sizes_over(connection: Connection, rollout: str, points: int) -> list[tuple[int, int]]:
    """Return (step, prompt tokens) of at most about `points` steps, evenly spread, the last one among them."""
    last = connection.execute(text("SELECT max(seq) FROM step WHERE rollout = :r"), {"r": rollout}).scalar() or 0
    every = max(1, -(-int(last) // points))
    query = (
        "SELECT seq, prompt_tokens FROM step WHERE rollout = :r AND prompt_tokens IS NOT NULL"
        " AND (seq % :every = 0 OR seq = :last OR seq = 1) ORDER BY seq"
    )
    rows = connection.execute(text(query), {"r": rollout, "every": every, "last": last})
    return [(int(row[0]), int(row[1])) for row in rows]


def past_half(connection: Connection, rollout: str, half: int) -> tuple[int, int]:
    """Return (steps whose prompt had more than `half` tokens, tokens above it), summed up."""
    query = "SELECT count(*), coalesce(sum(prompt_tokens - :half), 0) FROM step WHERE rollout = :r AND prompt_tokens > :half"
    row = connection.execute(text(query), {"r": rollout, "half": half}).one()
    return int(row[0]), int(row[1])


def failed_steps(connection: Connection, rollout: str) -> tuple[int, int]:
    """Return (failed steps, done steps)."""
    query = "SELECT coalesce(sum(failed), 0), count(*) FROM step WHERE rollout = :r AND state = 'done' AND seq > 0"
    row = connection.execute(text(query), {"r": rollout}).one()
    return int(row[0]), int(row[1])


def folded(connection: Connection, rollout: str) -> dict[str, int]:
    """Return of the folds that are shown: how many, the steps they cover, their tokens, and how many folds there ever were."""
    query = (
        "SELECT count(*) FILTER (WHERE merged_into IS NULL),"
        " coalesce(sum(last - first + 1) FILTER (WHERE merged_into IS NULL), 0),"
        " coalesce(sum(tokens) FILTER (WHERE merged_into IS NULL), 0), count(*) FROM fold WHERE rollout = :r"
    )
    row = connection.execute(text(query), {"r": rollout}).one()
    return {"live": int(row[0]), "steps": int(row[1]), "tokens": int(row[2]), "made": int(row[3])}


def characters(connection: Connection, rollout: str, last: int) -> tuple[int, int]:
    """Return the characters of replies and observations up to step `last`, and of all steps."""
    size = "length(coalesce(reply, '')) + length(coalesce(observation, ''))"
    query = f"SELECT coalesce(sum({size}) FILTER (WHERE seq <= :last), 0), coalesce(sum({size}), 0) FROM step WHERE rollout = :r"
    row = connection.execute(text(query), {"r": rollout, "last": last}).one()
    return int(row[0]), int(row[1])


def cost_of(connection: Connection, rollout: str, kinds: tuple[str, ...]) -> dict[str, Any]:
    """Return what the calls of these kinds took: calls, tokens, usd, seconds."""
    names = ", ".join(f"'{kind}'" for kind in kinds)
    query = (
        "SELECT count(*), coalesce(sum(tokens_in + tokens_out), 0), coalesce(sum(cost_usd), 0),"
        f" coalesce(sum(ended_at - started_at), 0) FROM call WHERE rollout = :r AND kind IN ({names}) AND state = 'done'"
    )
    row = connection.execute(text(query), {"r": rollout}).one()
    return {
        "calls": int(row[0]),
        "tokens": int(row[1]),
        "usd": round(float(row[2]), 6),
        "seconds": round(float(row[3]), 1),
    }
