"""Hold report.md against what the running interpreter itself says: signatures, classes, constants, docstrings.

Usage: `python check.py report.md`. Passes (exit code 0) when every question is answered with citations that hold, at least
eight answers are right and at most one is wrong.
"""

from __future__ import annotations

import ast
import collections
import difflib
import functools
import http.client
import inspect
import json
import pickle
import random
import shlex
import shutil
import socketserver
import statistics
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from citations import Answer, judge, plain, read_report

STDLIB = Path(sysconfig.get_path("stdlib"))


def literal(answer: Answer) -> object:
    """The value an answer spells, or None."""
    try:
        return ast.literal_eval(answer.text)
    except (ValueError, SyntaxError):
        return None


def default(function: Callable[..., object], parameter: str) -> object:
    """The default value of a parameter, as the interpreter knows it."""
    return inspect.signature(function).parameters[parameter].default


def same_file_error() -> type[Exception]:
    """The exception of copying a file onto itself, by doing it."""
    with tempfile.NamedTemporaryFile() as file:
        try:
            shutil.copyfile(file.name, file.name)
        except Exception as error:
            return type(error)
    raise AssertionError("copying a file onto itself went well")


def bases(cls: type) -> set[str]:
    """The names of a class's direct bases."""
    return {base.__name__ for base in cls.__bases__}


def says(answer: Answer, phrase: str, source: object) -> bool:
    """True when the answer holds a phrase that the source of a module or function holds as well."""
    assert phrase in plain(inspect.getsource(source)), phrase  # type: ignore[arg-type]
    return phrase.lower() in answer.text.lower()


def names(answer: Answer) -> set[str]:
    """The last parts of the dotted names in an answer."""
    return {name.strip(" `").rpartition(".")[2] for name in answer.text.split(",")}


CHECKS: dict[int, Callable[[Answer], bool]] = {
    1: lambda a: literal(a) == default(functools.lru_cache, "maxsize"),
    2: lambda a: literal(a) == http.client.HTTPS_PORT,
    3: lambda a: literal(a) == default(difflib.get_close_matches, "cutoff"),
    4: lambda a: names(a) == bases(collections.Counter),
    5: lambda a: names(a) == bases(json.JSONDecodeError),
    6: lambda a: Path(a.text) == Path(str(inspect.getsourcefile(ast.literal_eval))).relative_to(STDLIB),
    7: lambda a: literal(a) == pickle.DEFAULT_PROTOCOL,
    8: lambda a: literal(a) == socketserver.TCPServer.request_queue_size,
    9: lambda a: says(a, "Eric S. Raymond", shlex),
    10: lambda a: says(a, "the smaller of the two middle values", statistics.median_low),
    11: lambda a: says(a, "Mersenne Twister", random),
    12: lambda a: names(a) == {same_file_error().__name__},
}


def main(report: Path) -> int:
    """Print the table of results and return the exit code."""
    if not report.is_file():
        print(f"{report}: there is no report")
        return 1
    answers = read_report(report, STDLIB)
    right, wrong, _ = judge(answers, {n: n in answers and fits(answers[n]) for n, fits in CHECKS.items()})
    return 0 if right >= 8 and wrong <= 1 else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "report.md")))
