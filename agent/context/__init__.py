"""The task's material: a manifest made by the host, opened as documents by the REPL, never copied."""

from __future__ import annotations

from agent.context.documents import Context, Document, Match, Matches, Slice, open_context, open_refs, to_refs

__all__ = ["Context", "Document", "Match", "Matches", "Slice", "open_context", "open_refs", "to_refs"]
