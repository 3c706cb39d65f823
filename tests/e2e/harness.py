"""Run the command as a user does, kill it, and read what it left: the end state by which two runs are compared."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def command(*args: str, crash: str = "", **extra: str) -> subprocess.Popen[str]:
    """Start `rlm-agent ARGS` in the background; `crash` names a crash point."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **extra}
    if crash:
        environment["RLM_AGENT_CRASH"] = crash
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "agent.cli.main", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def rlm(*args: str, crash: str = "", **extra: str) -> tuple[int, str, str]:
    """Run `rlm-agent ARGS` to its end and return (exit code, stdout, stderr)."""
    process = command(*args, crash=crash, **extra)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def killed(code: int) -> bool:
    """Say whether a process ended by SIGKILL."""
    return code == -signal.SIGKILL


def git(workspace: Path, *args: str) -> str:
    """Run git in a workspace and return what it printed."""
    done = subprocess.run(["git", "-C", str(workspace), *args], capture_output=True, text=True, check=True)
    return done.stdout


def end_state(workspace: Path) -> dict[str, Any]:
    """Return all that must be equal in two runs of one task: files, trees of commits and checkpoints, journal."""
    files = {
        str(p.relative_to(workspace)): p.read_bytes()
        for p in sorted(workspace.rglob("*"))
        if p.is_file() and p.relative_to(workspace).parts[0] not in (".git", ".rlm-agent")
    }
    commits = git(workspace, "log", "--topo-order", "--format=%T %s", "main").splitlines()
    ref = git(workspace, "for-each-ref", "--format=%(refname)", "refs/rlm-agent/steps").splitlines()
    checkpoints = {len(ref): git(workspace, "log", "--format=%T %s", r).splitlines() for r in ref[:1]}
    db = sqlite3.connect(f"file:{workspace}/.rlm-agent/journal.db?mode=ro", uri=True)
    try:
        root = db.execute("SELECT id FROM rollout WHERE parent IS NULL").fetchone()[0]
        steps = db.execute(
            "SELECT seq, state, reply, observation, failed, answer FROM step WHERE rollout=? ORDER BY seq",
            [root],
        )
        calls = db.execute(
            "SELECT step, kind, args_hash, n, state, ok FROM call WHERE rollout=? ORDER BY 1, 2, 3, 4", [root]
        )
        outcome = db.execute("SELECT outcome, answer FROM run").fetchall()
        return {
            "files": files,
            "commits": commits,
            "checkpoints": checkpoints,
            "steps": steps.fetchall(),
            "calls": calls.fetchall(),
            "outcome": outcome,
        }
    finally:
        db.close()


def assert_sound(workspace: Path) -> None:
    """Check both stores with their own tools and with `verify`, and that git has nothing left to do."""
    fsck = subprocess.run(
        ["git", "-C", str(workspace), "fsck", "--strict", "--no-dangling"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert fsck.returncode == 0 and not fsck.stdout.strip(), fsck.stdout + fsck.stderr
    code, out, err = rlm("verify", str(workspace), "--json")
    assert code == 0, out + err
    assert json.loads(out)["problems"] == []
    assert git(workspace, "status", "--porcelain") == ""


def repls_below(pid: int) -> list[int]:
    """Return the REPL processes below a daemon."""
    found = subprocess.run(
        ["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    rows = [(int(row.split()[0]), int(row.split()[1]), row) for row in found[1:]]
    below, more = {pid}, True
    while more:
        new = {p for p, parent, _ in rows if parent in below} - below
        below |= new
        more = bool(new)
    return [p for p, _, row in rows if p in below and "agent.repl.worker" in row and "bwrap" not in row.split()[2]]


def question(workspace: Path, sql: str, *args: Any) -> list[tuple[Any, ...]]:
    """Ask the journal."""
    db = sqlite3.connect(f"file:{workspace}/.rlm-agent/journal.db?mode=ro", uri=True)
    try:
        return db.execute(sql, args).fetchall()
    finally:
        db.close()
