"""Messages as files: whole or not there, in order, and nothing that stands beside them stops the run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent import inbox
from agent.errors import UsageError


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / ".rlm-agent").mkdir()
    return tmp_path


def test_messages_wait_in_the_order_in_which_they_were_said(workspace: Path) -> None:
    ids = [inbox.post(workspace, text) for text in ("first", "second ünï", "third\n\nlines")]
    assert [m.text for m in inbox.waiting(workspace)] == ["first", "second ünï", "third\n\nlines"]
    inbox.taken(workspace, ids[:2])
    inbox.taken(workspace, ids[:2])
    assert [m.id for m in inbox.waiting(workspace)] == ids[2:]


@pytest.mark.parametrize("text", ["", " \n", "x" * (inbox.MAX_BYTES + 1)])
def test_what_is_no_message_is_refused(workspace: Path, text: str) -> None:
    with pytest.raises(UsageError):
        inbox.post(workspace, text)
    assert inbox.waiting(workspace) == []


def test_half_files_links_and_pipes_are_put_aside(workspace: Path) -> None:
    said = inbox.post(workspace, "good")
    folder = workspace / ".rlm-agent/inbox"
    (folder / "1.json").write_text('{"id": "1", "te')
    (folder / "2.json").symlink_to("/etc/hostname")
    os.mkfifo(folder / "3.json")
    (folder / ".half").write_text("x")
    assert [m.id for m in inbox.waiting(workspace)] == [said]
    assert sorted(name for name in os.listdir(folder) if name.endswith(".broken")) == [
        "1.json.broken",
        "2.json.broken",
        "3.json.broken",
    ]
