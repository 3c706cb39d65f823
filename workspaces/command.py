"""Git processes, always run the same way: on one explicit repository, with no hooks, no system or user
configuration, no signing and everything fsync'd, whatever the environment says. A repository's own content
can thus never choose a program that the daemon runs, and two machines get the same result.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import IO

from workspaces.errors import WorkspaceError

IDENTITY = ("rlm-agent", "rlm-agent@localhost")

_SETTINGS = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.fsync": "all",
    "core.fsyncMethod": "fsync",
    "core.excludesFile": os.devnull,
    "core.attributesFile": os.devnull,
    "commit.gpgSign": "false",
    "tag.gpgSign": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.ext.allow": "never",
    "user.name": IDENTITY[0],
    "user.email": IDENTITY[1],
}


def git_environment(work_tree: Path, git_dir: Path | None = None) -> dict[str, str]:
    """Return the environment in which git sees the repository of `work_tree` and nothing else."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    settings = {**_SETTINGS, "safe.directory": str(work_tree)}
    env.update(
        GIT_DIR=str(git_dir or work_tree / ".git"),
        GIT_WORK_TREE=str(work_tree),
        GIT_CONFIG_NOSYSTEM="1",
        GIT_CONFIG_GLOBAL=os.devnull,
        GIT_CONFIG_COUNT=str(len(settings)),
        GIT_TERMINAL_PROMPT="0",
        GIT_NO_REPLACE_OBJECTS="1",
        LC_ALL="C",
    )
    for n, (name, value) in enumerate(settings.items()):
        env[f"GIT_CONFIG_KEY_{n}"], env[f"GIT_CONFIG_VALUE_{n}"] = name, value
    return env


def run_git(work_tree: Path, *args: str, git_dir: Path | None = None, check: bool = True) -> bytes:
    """Run one git command to its end and return its standard output.

    Raises WorkspaceError with git's own words when it fails and `check` is set.
    """
    done = subprocess.run(
        ["git", *args],
        cwd=work_tree,
        env=git_environment(work_tree, git_dir),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        start_new_session=True,
    )
    if check and done.returncode:
        raise git_failed(work_tree, args[0], done.stderr)
    return done.stdout if check else done.stdout + done.stderr


def git_failed(place: Path, what: str, said: bytes) -> WorkspaceError:
    """Return the error for a git command that failed, a held lock told apart."""
    text = said.decode(errors="replace").strip() or "it ended without a word"
    if "File exists" in text and ".lock" in text:
        hint = "another git process works in this workspace; wait for it, or remove the lock file if there is none"
        return WorkspaceError(f"{place}: git {what}: {text}", hint, "locked")
    return WorkspaceError(f"{place}: git {what}: {text}", "look at it with `git fsck` and `git status`", "git")


class GitPipe:
    """One long-lived git process, started when first needed and again when it has died."""

    def __init__(self, work_tree: Path, git_dir: Path, *args: str) -> None:
        self._work_tree, self._git_dir, self._args = work_tree, git_dir, args
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None

    def request(self, data: bytes) -> IO[bytes]:
        """Send `data` and return the stream to read the answer from; a dead process is replaced first."""
        for attempt in (1, 2):
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(data)
                process.stdin.flush()
                return process.stdout
            except BrokenPipeError:
                if attempt == 2:
                    raise self.failed() from None
                self.close()
        raise AssertionError("unreachable")

    def failed(self) -> WorkspaceError:
        """Close the process and return the error that it died of."""
        said = self._said
        self._said = None
        self.close()
        text = b""
        if said is not None:
            said.seek(0)
            text = said.read()
            said.close()
        return git_failed(self._work_tree, self._args[0], text)

    def close(self) -> None:
        """End the process, if there is one; the next request starts another."""
        process, self._process = self._process, None
        if process is not None:
            for stream in (process.stdin, process.stdout):
                try:
                    if stream is not None:
                        stream.close()
                except BrokenPipeError:
                    pass
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._said is not None:
            self._said.close()
            self._said = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        # A session of its own: Ctrl-C in the terminal must not kill it in the middle of an answer.
        self._process = subprocess.Popen(
            ["git", *self._args],
            cwd=self._work_tree,
            env=git_environment(self._work_tree, self._git_dir),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            start_new_session=True,
        )
        return self._process
