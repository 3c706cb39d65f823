"""What can go wrong with the journal, and the way out of it."""

from __future__ import annotations


class JournalError(Exception):
    """The journal cannot be read or written."""

    kind = "journal"
    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class LeaseLost(JournalError):
    """Another process has taken over this run; this one must stop without writing."""

    kind = "lease"


class RunHeld(JournalError):
    """A living process holds this run's lock."""

    kind = "busy"
    exit_code = 2
