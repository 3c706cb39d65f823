"""Hold report.md against what the notes say.

Usage: `python check.py report.md`. Passes (exit code 0) when at least five of the six questions are right, "not found" for
the one without an answer among them, and every citation holds.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from citations import judge, read_report  # noqa: E402

#: Per question the phrases of which one must stand in the answer; none where the notes hold no answer.
EXPECTED: dict[int, tuple[str, ...]] = {
    1: ("Marte Ness", "Jonas Brekke"),
    2: ("28 August 2023",),
    3: ("187",),
    4: ("compressor relay had burnt out",),
    5: (),
    6: ("72",),
}


def main(report: Path) -> int:
    """Print the table of results and return the exit code."""
    if not report.is_file():
        print(f"{report}: there is no report")
        return 1
    answers = read_report(report, HERE / "docs")
    right = {}
    for number, phrases in EXPECTED.items():
        answer = answers.get(number)
        fits = answer is not None and (any(p in answer.text for p in phrases) if phrases else not answer.found)
        right[number] = fits
    good, wrong, _ = judge(answers, right)
    return 0 if good >= 5 and wrong <= 1 and right[5] else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "report.md")))
