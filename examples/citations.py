"""Reading a `report.md` and holding its citations against the documents, for the checks of both examples.

An answer counts only when each cited line exists, the quote is that line, and the answer stands in the quoted lines (or is
the name of the cited document).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Answer:
    """One answered question; `fault` says what is wrong with its citations, empty when nothing is."""

    number: int
    text: str
    cited: tuple[tuple[str, int], ...]
    fault: str = ""

    @property
    def found(self) -> bool:
        """False when the report says that the documents hold no answer."""
        return self.text.lower() != "not found"


def read_report(report: Path, root: Path) -> dict[int, Answer]:
    """Parse the report's sections and check every citation against the files under `root`."""
    parts = re.split(r"(?m)^## Q(\d+)\.", report.read_text(encoding="utf-8"))
    return {
        int(number): _section(int(number), body, root) for number, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def _section(number: int, body: str, root: Path) -> Answer:
    said = re.search(r"(?m)^Answer: (.+)$", body)
    if said is None:
        return Answer(number, "", (), "no answer line")
    text = said[1].strip()
    cited = tuple(
        (name, int(line))
        for name, line in re.findall(r"`([^`\n]+):(\d+)`", body.partition("\nEvidence:")[2].partition("\n> ")[0])
    )
    quotes = [row[2:] for row in body.splitlines() if row.startswith("> ")]
    answer = Answer(number, text, cited)
    return Answer(number, text, cited, _fault(answer, quotes, root) if answer.found else "")


def _fault(answer: Answer, quotes: list[str], root: Path) -> str:
    if not answer.cited or len(quotes) != len(answer.cited):
        return f"{len(answer.cited)} citations, {len(quotes)} quotes"
    for (name, line), quote in zip(answer.cited, quotes, strict=True):
        path = (root / name).resolve()
        if not path.is_relative_to(root.resolve()) or not path.is_file():
            return f"{name} is not a document"
        rows = path.read_text(encoding="utf-8", errors="replace").split("\n")
        if not 1 <= line <= len(rows) or rows[line - 1].rstrip() != quote.rstrip():
            return f"{name}:{line} is not what is quoted"
    if answer.text not in {name for name, _ in answer.cited} and plain(answer.text) not in plain("\n".join(quotes)):
        return "the answer does not stand in the cited lines"
    return ""


def plain(text: str) -> str:
    """Take line ends, comment signs and repeated spaces out of a text."""
    return re.sub(r"\s+", " ", " ".join(re.sub(r"^[\s>#]+", "", row) for row in text.split("\n"))).strip()


def judge(answers: dict[int, Answer], right: dict[int, bool]) -> tuple[int, int, int]:
    """Print a line per question and return how many are right, wrong, and not found.

    `right[n]` says whether the text of answer n is the expected one; a bad citation makes an answer wrong.
    """
    marks = {number: _mark(answers.get(number), fits) for number, fits in sorted(right.items())}
    for number, mark in marks.items():
        answer = answers.get(number, Answer(number, "(missing)", ()))
        where = ", ".join(f"{name}:{line}" for name, line in answer.cited[:2])
        print(f"Q{number:<3} {mark:10} {answer.text[:60]:62} {where} {answer.fault}".rstrip())
    counts = [list(marks.values()).count(mark) for mark in ("right", "wrong", "not found")]
    print(f"{counts[0]} right, {counts[1]} wrong, {counts[2]} not found, of {len(marks)}")
    return counts[0], counts[1], counts[2]


def _mark(answer: Answer | None, fits: bool) -> str:
    if answer is None or not answer.text or answer.fault:
        return "wrong"
    return "right" if fits else "wrong" if answer.found else "not found"
