"""What the documents say, held against the program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from agent.cli.main import app
from agent.outcome import EXIT_CODES
from agent.task import Task
from agent.testing import CRASH_POINTS

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def commands() -> set[str]:
    return {c.name or c.callback.__name__ for c in app.registered_commands if c.callback is not None}


def test_every_command_is_in_the_readme_and_has_help() -> None:
    named = set(re.findall(r"rlm-agent ([a-z]+)", README)) | set(re.findall(r"`([a-z]+)(?: [A-Z\[-][^`]*)?`", README))
    assert commands() <= named
    assert all((c.callback.__doc__ or "").strip() for c in app.registered_commands if c.callback is not None)


def test_the_readme_names_no_command_that_does_not_exist() -> None:
    shown = set(re.findall(r"(?:\$ |bin/|`)rlm-agent ([a-z]+)", README))
    assert shown <= commands()


def test_the_readme_s_task_loads(tmp_path: Path) -> None:
    block = re.search(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert block is not None
    (tmp_path / "data").mkdir()
    (tmp_path / "task.yaml").write_text(block.group(1))
    assert Task.load(tmp_path / "task.yaml").limits.cost_usd == 5


def test_every_outcome_has_an_exit_code_that_the_readme_tells() -> None:
    told = {int(code) for code in re.findall(r"(\d+)(?= [a-z])", README[README.index("Exit codes:") :][:300])}
    assert {c for c in EXIT_CODES.values() if c not in (1,)} <= told


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "design").glob("*.md")), ids=lambda p: p.stem)
def test_design_pages_state_their_decision(page: Path) -> None:
    text = page.read_text()
    assert text.startswith("# ")
    assert "**Decision.**" in text
    for path in re.findall(r"`((?:agent|tests|state|workspaces)/[\w/.]+)`", text):
        assert (ROOT / path).exists(), f"{page.name} names {path}, which is not there"


def test_agents_md_is_short_and_its_map_is_true() -> None:
    text = (ROOT / "AGENTS.md").read_text()
    assert len(text.splitlines()) <= 120
    for name in re.findall(r"\b([a-z_]+\.py)\b", text):
        if name != "utils.py":
            assert list((ROOT / "agent").rglob(name)), f"AGENTS.md names {name}, which is not there"


def test_every_crash_point_is_visited_somewhere() -> None:
    source = "\n".join(p.read_text() for p in (ROOT / "agent").rglob("*.py") if p.name != "testing.py")
    missing = [point for point in CRASH_POINTS if f'"{point}"' not in source]
    assert missing == []


@pytest.mark.parametrize("example", ["stdlib", "notes"])
def test_examples_load(example: str) -> None:
    task = Task.load(ROOT / "examples" / example / "task.yaml")
    assert task.accept
    assert yaml.safe_load((ROOT / "examples" / example / "task.yaml").read_text())["version"] == 1
