"""Citations in an answer, looked up again in the documents."""

from __future__ import annotations

from pathlib import Path

from agent.context import open_context
from agent.context.manifest import ContextSource, build_manifest
from agent.evidence import Citation, citations


def test_cited_lines_are_opened_and_made_up_ones_are_marked(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "b.py").write_text("x = 1\n")
    context = open_context(build_manifest([ContextSource(str(tmp_path))]))
    answer = (
        "It is two [sub/a.txt:2], see b.py:1 and [sub/a.txt:2-3]; not [c.txt:1], nor [b.py:9]. [Note:1] is a remark."
    )
    assert citations(answer, context) == [
        Citation("sub/a.txt", 2, "two"),
        Citation("sub/a.txt", 3, "three"),
        Citation("c.txt", 1, None),
        Citation("b.py", 9, None),
        Citation("b.py", 1, "x = 1"),
    ]


def test_an_answer_without_citations_has_none(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    context = open_context(build_manifest([ContextSource(str(tmp_path))]))
    assert citations("At 10:30 the ratio was 3:1.", context) == []
