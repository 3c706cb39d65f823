"""The journal's one writer: a thread that owns the only read-write connection and commits in groups.

Whoever wants to write hands a function over and waits; everything that waits is committed together (many outcomes, one
fsync). Each transaction first checks the lease's epoch, so a daemon that lost its lease changes no row. Readers in other
processes use `open_reader`.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event, select, text
from sqlalchemy.exc import DatabaseError

from state import schema
from state.errors import JournalError, LeaseLost

T = TypeVar("T")
Work = Callable[[Connection], Any]
_DISK = "free some disk space or check the disk, then `rlm-agent resume`"
_DAMAGED = "put a copy of the file back, then `rlm-agent resume`; git holds the work up to the last checkpoint"

_EPOCH = select(schema.lease.c.epoch)
_PRAGMAS = {"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "10000"}


def _configure(engine: Engine, pragmas: dict[str, str]) -> None:
    """Take transactions out of the driver's hands: its legacy mode does not begin for SELECT and DDL."""

    @event.listens_for(engine, "connect")
    def _connect(dbapi: Any, _record: Any) -> None:
        dbapi.isolation_level = None
        for name, wanted in pragmas.items():
            dbapi.execute(f"PRAGMA {name}={wanted}")
            got = str(dbapi.execute(f"PRAGMA {name}").fetchone()[0])
            if got != wanted:
                raise JournalError(f"SQLite refused PRAGMA {name}={wanted} (it is {got})")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if pragmas is _PRAGMAS else "BEGIN")


class Journal:
    """The read-write journal of one run. `write` and `read` may be called from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.epoch: int | None = None
        self._work: queue.SimpleQueue[tuple[Work, Future[Any]] | None] = queue.SimpleQueue()
        self._failed: BaseException | None = None
        opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._serve, args=(opened,), name="journal", daemon=True)
        self._thread.start()
        opened.result()
        self._readers = _read_only(path)

    def submit(self, work: Callable[[Connection], T]) -> Future[T]:
        """Let `work` run in a transaction; the future has its result, or its error, once that is on disk."""
        done: Future[T] = Future()
        if self._failed is not None:
            done.set_exception(JournalError(f"{self.path}: the journal is closed", str(self._failed)))
        else:
            self._work.put((work, done))
        return done

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction and return its result once it is on disk.

        Raises `LeaseLost` when another process took over, `JournalError` when the disk or the file fails.
        """
        return self.submit(work).result()

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work`, which only reads, over all that was committed before the call.

        On a read-only connection of the caller's own: a look need wait neither for the writer nor for a disk.
        """
        if self._failed is not None:
            raise JournalError(f"{self.path}: the journal is closed", str(self._failed))
        try:
            with self._readers.connect() as connection:
                return work(connection)
        except DatabaseError as error:
            raise _translate(error, self.path) from error

    def close(self) -> None:
        """Finish what waits and close the file."""
        self._readers.dispose()  # the writer goes last: it alone can empty the log of writes
        self._work.put(None)
        self._thread.join()

    def _serve(self, opened: Future[None]) -> None:
        engine = create_engine(f"sqlite:///{self.path}", poolclass=None)
        try:
            _configure(engine, _PRAGMAS)
            with engine.connect() as connection:
                with connection.begin():
                    schema.migrate(connection, str(self.path))
                opened.set_result(None)
                while (first := self._work.get()) is not None:
                    if not self._commit_group(connection, first):
                        break
        except BaseException as error:
            self._failed = error
            if not opened.done():
                opened.set_exception(_translate(error, self.path))
        finally:
            engine.dispose()
            self._failed = self._failed or JournalError("it was closed")
            self._refuse_rest()

    def _commit_group(self, connection: Connection, first: tuple[Work, Future[Any]]) -> bool:
        """Commit `first` and all that waits behind it; False when the journal was closed meanwhile."""
        group, more = [first], True
        while len(group) < 500:
            try:
                item = self._work.get_nowait()
            except queue.Empty:
                break
            if item is None:
                more = False
                break
            group.append(item)
        group = [item for item in group if item[1].set_running_or_notify_cancel()]  # else nobody waits for it any more
        if len(group) < 2:
            for item in group:
                self._commit_one(connection, *item)
            return more
        settle: list[Callable[[], None]] = []
        try:
            with connection.begin():
                self._check_epoch(connection)
                for work, done in group:
                    settle.append(self._one(connection, work, done))
        except BaseException as error:
            for _, done in group:
                done.set_exception(_translate(error, self.path))
            return more
        for tell in settle:
            tell()
        return more

    def _commit_one(self, connection: Connection, work: Work, done: Future[Any]) -> None:
        """Commit a single writer's work: it has no neighbours, so it needs no savepoint."""
        try:
            with connection.begin():
                self._check_epoch(connection)
                result = work(connection)
        except BaseException as error:
            done.set_exception(_translate(error, self.path))
        else:
            done.set_result(result)

    @staticmethod
    def _one(connection: Connection, work: Work, done: Future[Any]) -> Callable[[], None]:
        """Run one writer's work in a savepoint, so that its failure undoes nothing of its neighbours."""
        try:
            with connection.begin_nested():
                result = work(connection)
        except Exception as error:
            caught = _translate(error, Path(str(connection.engine.url.database)))
            return lambda: done.set_exception(caught)
        return lambda: done.set_result(result)

    def _check_epoch(self, connection: Connection) -> None:
        if self.epoch is None:
            return
        found = connection.execute(_EPOCH).scalar()
        if found != self.epoch:
            raise LeaseLost(
                f"{self.path}: this daemon's lease (epoch {self.epoch}) was taken over by epoch {found}",
                "it stops here; the other process goes on",
            )

    def _refuse_rest(self) -> None:
        while True:
            try:
                item = self._work.get_nowait()
            except queue.Empty:
                return
            if item is not None:
                item[1].set_exception(JournalError(f"{self.path}: the journal is closed"))


def open_reader(path: Path) -> Engine:
    """Open the journal read-only, for other processes: they see each committed state, and never write."""
    if not path.exists():
        raise JournalError(f"{path}: no journal here", "is this a workspace? start a run with `rlm-agent start`")
    engine = _read_only(path)

    @event.listens_for(engine, "handle_error")
    def _error(context: Any) -> None:
        raise _translate(context.sqlalchemy_exception or context.original_exception, path) from None

    return engine


def _read_only(path: Path) -> Engine:
    engine = create_engine(f"sqlite:///file:{quote(str(path))}?mode=ro&uri=true")
    _configure(engine, {"busy_timeout": "10000"})
    return engine


def integrity_problems(path: Path) -> list[str]:
    """Return what SQLite's own check finds wrong with the file; empty when sound."""
    engine = open_reader(path)
    try:
        with engine.connect() as connection:
            rows = [str(row[0]) for row in connection.execute(text("PRAGMA integrity_check"))]
    except JournalError as error:
        return [error.message]
    finally:
        engine.dispose()
    return [row for row in rows if row != "ok"]


def _translate(error: BaseException, path: Path) -> BaseException:
    if isinstance(error, DatabaseError):
        damaged = any(word in str(error.orig) for word in ("not a database", "malformed"))
        return JournalError(f"{path}: {error.orig}", _DAMAGED if damaged else _DISK)
    return error


def copy_journal(source: Path, target: Path) -> None:
    """Write a copy of a journal as it is at this moment, also while a daemon writes it; `target` must not exist."""
    engine = open_reader(source)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("COMMIT")  # a copy is made outside of transactions
            connection.exec_driver_sql("VACUUM INTO ?", (str(target),))
            connection.exec_driver_sql("BEGIN")
    finally:
        engine.dispose()
