"""The task file that `rlm-agent init` writes: short, commented, and valid as it stands."""

from __future__ import annotations

import yaml

_STARTER = """\
# A task for rlm-agent.   rlm-agent start --task {file}
version: 1
name: {name}

# What is to be done, in your words: what to look at, what to make, when it is done.
goal: |
  Read the material in `context` and write `report.md`: what it is, what is in it, and the
  ten facts a newcomer should know, each with the file and line it comes from.

# Files, folders or globs, relative to this file. Opened read-only, never pasted into a prompt.
context:
  - path: .
    exclude: ["{file}", "work/**", ".git/**"]

workspace: ./work                     # a git repository that is made; default: in the state folder

models:
  root: offline/explorer              # works without a key; then e.g. anthropic/claude-sonnet-4-5
  # sub: openai/gpt-5-mini            # answers the sub-calls; default: the root's

limits:
  steps: 200
  wall_time: 8h
  cost_usd: 5
  # tokens: 2M
  # depth: 2

# The run is done only when all of these hold.
accept:
  - file: report.md
"""


def starter_task(name: str, file: str = "task.yaml") -> str:
    """Give the text of a first task called `name`, to be saved as `file`."""
    return _STARTER.replace("{name}", yaml.safe_dump(name).splitlines()[0]).replace("{file}", file)
