"""The command's entry: one app, one place where errors become a message, a hint and an exit code.

With `--json` stdout holds one document and nothing else, errors included: `{"error": {kind, message, hint}}`.
"""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from typing import Any

import typer

from agent.cli import asking, look, running, setup, steering

#: typer brings a click of its own; its public names lead to the base of all usage errors.
_UsageErrors: Any = typer.BadParameter.__mro__[2]

_HINTS = {
    errno.ENOSPC: "free some space, then run it again; nothing is lost",
    errno.EDQUOT: "raise the quota or free some space, then run it again; nothing is lost",
    errno.EROFS: "mount the disk writable again, then run it again; nothing is lost",
    errno.EACCES: "give the user that runs rlm-agent access to it",
    errno.EPERM: "give the user that runs rlm-agent access to it",
}

app = typer.Typer(
    name="rlm-agent",
    help="Work on one task for hours to months without losing the place: start, kill, resume, read git log.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for module in (running, asking, look, steering, setup):
    module.register(app)


def main() -> None:
    """Run the command and exit with the code of design §10."""
    _open_streams()
    as_json = "--json" in sys.argv
    try:
        code = app(standalone_mode=False)
    except typer.Abort:
        code = 130
    except _UsageErrors as error:
        code = _fail(2, "usage", error.format_message(), "rlm-agent --help lists the commands", as_json)
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        code = 0
    except OSError as error:
        message = f"{error.filename or ''}: {error.strerror or error}".lstrip(": ")
        code = _fail(1, "system", message, _HINTS.get(error.errno or 0, ""), as_json)
    except Exception as error:
        if not hasattr(error, "exit_code"):
            raise
        known: Any = error
        code = _fail(known.exit_code, known.kind, str(known), known.hint, as_json)
    _let_go_of_streams()
    sys.exit(code if isinstance(code, int) else 0)


def _open_streams() -> None:
    """See to it that stdin, stdout and stderr are open (else a journal could become fd 1) and take any character."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 (open as long as the process)
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _let_go_of_streams() -> None:
    """Flush what is left; where nobody reads it any more, drop it, or Python itself would exit with 120."""
    for stream, fd in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
        except (OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, fd)
            os.close(nowhere)


def _fail(code: int, kind: str, message: str, hint: str, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"error": {"kind": kind, "message": message, "hint": hint}}))
    else:
        print(f"error: {message}" + (f"\n  {hint}" if hint else ""), file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
