"""Between rows and records: the one place that turns SQL results into frozen structs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, Executable, Table, insert

S = TypeVar("S", bound=msgspec.Struct)


def one(connection: Connection, query: Executable, kind: type[S], **values: Any) -> S | None:
    """Return the first row as a record, or None; `values` fill the query's parameters."""
    row = connection.execute(query, values).mappings().first()
    return None if row is None else kind(**{f: row[f] for f in kind.__struct_fields__})


def many(connection: Connection, query: Executable, kind: type[S], **values: Any) -> list[S]:
    """Return all rows as records; `values` fill the query's parameters."""
    fields = kind.__struct_fields__
    return [kind(**{f: row[f] for f in fields}) for row in connection.execute(query, values).mappings()]


def add(connection: Connection, table: Table, records: Iterable[msgspec.Struct]) -> None:
    """Insert records as they are."""
    rows: list[dict[str, Any]] = [msgspec.structs.asdict(record) for record in records]
    if rows:
        connection.execute(insert(table), rows)
