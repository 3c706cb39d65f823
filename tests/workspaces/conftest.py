"""A fresh workspace for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from workspaces.workspace import Workspace


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace.create(tmp_path / "ws", "Count the words.", "words", when=1_700_000_000) as workspace:
        yield workspace
