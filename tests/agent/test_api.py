"""What `from agent import …` gives, and that it stays that."""

from __future__ import annotations

import subprocess
import sys


def test_the_names_are_functions_and_classes_whatever_was_imported_before() -> None:
    code = """
import agent.api, agent.daemon, agent.rlm, agent.task
from agent import RLM, Completion, Outcome, Task, resume, run
assert callable(run) and callable(resume), (run, resume)
assert all(isinstance(kind, type) for kind in (RLM, Completion, Outcome, Task))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, agent; assert not {'litellm', 'sqlalchemy', 'pydantic', 'git'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
