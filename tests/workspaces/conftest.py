"""A fresh workspace for each test, with a home of its own so that no user's git configuration is seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from workspaces.workspace import Workspace


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    return home


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace.create(tmp_path / "ws", "Count the words.", "words", when=1_700_000_000) as workspace:
        yield workspace
