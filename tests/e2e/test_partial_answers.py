"""However a run stops, the answer so far is delivered with its outcome."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.harness import command, killed, question
from tests.e2e.test_hostile import make, start

SO_FAR = "answer['content'] = 'so far'"


def outcome(workspace: Path) -> tuple[str, str]:
    """Return the run's outcome and answer, as the journal has them."""
    found = question(workspace, "SELECT outcome, answer FROM run")[0]
    return found[0], found[1] or ""


@pytest.mark.parametrize(
    ("cells", "limits", "kind"),
    [
        ([SO_FAR, "x = 1"], "steps: 2", "budget"),
        ([SO_FAR, "import os\nos._exit(1)", "1 / 0"], "errors: 2", "stuck"),
        ([SO_FAR, "x = 1", "x = 2"], "calls: 2", "budget"),
    ],
)
def test_at_a_limit(tmp_path: Path, cells: list[str], limits: str, kind: str) -> None:
    make(tmp_path, *cells)
    file = tmp_path / "task.yaml"
    file.write_text(file.read_text().replace("errors: 30, ", "").replace("limits: {", f"limits: {{{limits}, "))
    _, out, err = start(tmp_path)
    assert outcome(tmp_path / "w") == (kind, "so far"), out + err


def test_when_the_answer_is_not_accepted(tmp_path: Path) -> None:
    make(tmp_path, *["FINAL('so far')"] * 2, extra="accept: [{file: report.md}]\n")
    file = tmp_path / "task.yaml"
    file.write_text(file.read_text().replace("errors: 30", "errors: 2"))
    code, out, err = start(tmp_path)
    assert (code, outcome(tmp_path / "w")) == (3, ("gave_up", "so far")), out + err


def test_after_a_kill_and_a_resume(tmp_path: Path) -> None:
    make(tmp_path, SO_FAR, "x = 1", extra="")
    file = tmp_path / "task.yaml"
    file.write_text(file.read_text().replace("limits: {", "limits: {steps: 2, "))
    code, _, _ = start(tmp_path, crash="step.replied:2")
    assert killed(code)
    start(tmp_path)
    assert outcome(tmp_path / "w") == ("budget", "so far")


def test_when_the_model_cannot_be_had(tmp_path: Path) -> None:
    make(tmp_path, SO_FAR)
    script = tmp_path / "script.yaml"
    script.write_text(script.read_text() + "- {error: {kind: quota, message: no more}}\n")
    code, out, _ = start(tmp_path, "--json")
    assert code == 75, out
    assert outcome(tmp_path / "w") == ("parked", "so far"), json.loads(out)


def test_when_it_is_stopped(tmp_path: Path) -> None:
    make(tmp_path, SO_FAR, "import time\nopen('begun', 'w').close()\ntime.sleep(1)", "x = 3")
    run = command("start", "--task", str(tmp_path / "task.yaml"), "--workspace", str(tmp_path / "w"))
    while not (tmp_path / "w/begun").exists():
        assert run.poll() is None
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=60)
    assert outcome(tmp_path / "w") == ("stopped", "so far")
