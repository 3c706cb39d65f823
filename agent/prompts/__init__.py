"""The prompts, one file per role."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def prompt(name: str) -> str:
    """Return the text of a role's prompt, such as root, ask, child or fold."""
    return files(__name__).joinpath(f"{name}.md").read_text("utf-8").strip()
