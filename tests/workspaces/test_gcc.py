"""`.GCC`: the same records give the same bytes, only what is new is written, and it can be read back in pieces."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml

from tests.workspaces.gits import assert_sound, git, milestone
from workspaces import gcc
from workspaces.errors import WorkspaceError
from workspaces.gcc import CommitRecord, LogRecord
from workspaces.ledger import SEGMENT_BYTES, segments, split_entries
from workspaces.workspace import Workspace


def log(n: int, size: int = 20) -> LogRecord:
    return LogRecord(step=n, observation=f"saw {n} " + "o" * size, thought=f"think {n}", action=f"print({n})")


def commit(n: int) -> CommitRecord:
    return CommitRecord(
        seq=n,
        id=f"C{n}",
        summary=f"summary {n}",
        purpose="count",
        previous_progress=f"progress {n - 1}",
        contribution=f"contribution {n}",
        step=n * 5,
        log_first=n * 5 - 4,
        log_last=n * 5,
    )


def write(path: Path, logs: int, commits: int = 0, size: int = 20) -> None:
    gcc.write_branch_files(
        path,
        "main",
        "count",
        [commit(n) for n in range(1, commits + 1)],
        [log(n, size) for n in range(1, logs + 1)],
        {"branch": {"name": "main", "commits": commits}},
    )


def content(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_growing_and_writing_at_once_give_the_same_bytes(tmp_path: Path) -> None:
    for n in range(1, 301):
        write(tmp_path / "grown", n, n // 5, size=3500)
    write(tmp_path / "once", 300, 60, size=3500)
    assert content(tmp_path / "grown") == content(tmp_path / "once")
    files = segments(tmp_path / "grown" / ".GCC/branches/main", "log")
    assert len(files) > 3
    assert [f.name for f in files[:2]] == ["0001.md", "0002.md"]
    assert all(f.stat().st_size <= SEGMENT_BYTES for f in files)
    entries = split_entries([f.read_text() for f in files])
    assert [n for n, _ in entries] == list(range(1, 301))
    assert all(f"print({n})" in text for n, text in entries)


@pytest.mark.parametrize("damage", ["torn", "tail", "head", "gone", "garbage", "longer", "shorter"])
def test_damaged_files_are_made_again(tmp_path: Path, damage: str) -> None:
    write(tmp_path / "good", 200, 3, size=3000)
    write(tmp_path / "bad", 200, 3, size=3000)
    file = tmp_path / "bad/.GCC/branches/main/log.md"
    data = file.read_bytes()
    changed = {
        "torn": data[:-40],
        "tail": data[:-400] + b"X" + data[-399:],
        "head": b"#" + data,
        "garbage": b"\xff" * 100,
        "longer": data + b"by hand\n",
        "shorter": data[:2000] + data[2010:],
    }
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(changed[damage])
    write(tmp_path / "bad", 200, 3, size=3000)
    assert content(tmp_path / "bad") == content(tmp_path / "good")


def test_a_rewound_run_loses_the_later_entries(tmp_path: Path) -> None:
    write(tmp_path / "a", 300, 5, size=3500)
    write(tmp_path / "a", 10, 1, size=3500)
    write(tmp_path / "b", 10, 1, size=3500)
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_appending_asks_only_for_what_is_new(tmp_path: Path) -> None:
    asked: list[int] = []
    records = [log(n) for n in range(1, 2001)]

    def behind(step: int) -> list[LogRecord]:
        asked.append(step)
        return [r for r in records[:have] if r.step > step]

    have = 1000
    gcc.write_branch_files(tmp_path, "main", "p", [], behind, {})
    first = (tmp_path / ".GCC/branches/main/log.md").stat()
    have = 1002
    gcc.write_branch_files(tmp_path, "main", "p", [], behind, {})
    assert asked == [-1, 999]
    assert (tmp_path / ".GCC/branches/main/log.md").stat().st_ino == first.st_ino  # appended, not replaced


def test_ten_thousand_steps_are_not_quadratic(tmp_path: Path) -> None:
    records = [log(n, 100) for n in range(1, 10_001)]
    rendered = 0

    def behind(step: int) -> list[LogRecord]:
        nonlocal rendered
        found = records[max(0, step) : have]
        rendered += len(found)
        return found

    started = time.perf_counter()
    have = 80
    while have < 10_000:
        have += 20
        gcc.write_branch_files(tmp_path, "main", "p", [], behind, {})
    print(f"10,000 steps in {time.perf_counter() - started:.2f} s")
    assert rendered < 11_000


def test_long_parts_are_cut_and_say_where_the_rest_is() -> None:
    text = gcc.render_log_entry(
        LogRecord(step=7, observation="start" + "x" * 50_000 + "end", thought="", action="```\nx\n```")
    )
    assert len(text) < 5000
    assert "`rlm-agent show 7`" in text
    assert "start" in text
    assert "end" in text
    assert "````python" in text  # a fence longer than the one inside


def test_an_entry_cannot_pass_for_two(tmp_path: Path) -> None:
    evil = LogRecord(step=1, observation="a\n<!-- end 1 @20 -->\n\nb", thought="<!-- end 9 @3 -->", action="x")
    gcc.write_branch_files(tmp_path, "main", "p", [], [evil, log(2)], {})
    assert [n for n, _ in split_entries([(tmp_path / ".GCC/branches/main/log.md").read_text()])] == [1, 2]


def test_what_people_add_to_metadata_survives(tmp_path: Path) -> None:
    write(tmp_path, 1, 1)
    path = tmp_path / ".GCC/branches/main/metadata.yaml"
    path.write_text("# mine\nowner: Ada  # keep\n" + path.read_text() + "notes:\n- one\n# end\n")
    write(tmp_path, 2, 2)
    text = path.read_text()
    assert yaml.safe_load(text) == {"owner": "Ada", "branch": {"name": "main", "commits": 2}, "notes": ["one"]}
    assert text.startswith("# mine\nowner: Ada  # keep\n")
    assert "# end" in text
    path.write_text("{owner: Ada, branch: 3}\n")
    write(tmp_path, 2, 2)
    assert yaml.safe_load(path.read_text()) == {"owner": "Ada", "branch": {"name": "main", "commits": 2}}
    path.write_text("a: [1,\nbroken")
    write(tmp_path, 2, 2)
    assert yaml.safe_load(path.read_text()) == {"branch": {"name": "main", "commits": 2}}
    assert path.with_name("metadata.broken.yaml").read_text() == "a: [1,\nbroken"


@pytest.mark.parametrize("name", ["../x", "a b", "-x", "x.lock", "", "a//b", ".git", "a/../b"])
def test_a_branch_name_is_no_path_out(tmp_path: Path, name: str) -> None:
    with pytest.raises(WorkspaceError):
        gcc.write_branch_files(tmp_path, name, "p", [], [], {})
    assert list(tmp_path.iterdir()) == []


def test_looking_back(ws: Workspace) -> None:
    write(ws.path, 60, 12)
    milestone(ws, "summary 12")
    overview = gcc.context_overview(ws.path, 4000)
    assert "Count the words." in overview
    assert "- main (here): summary 12" in overview
    branch = gcc.context_branch(ws.path, "main", 4000)
    assert "**Branch Purpose**: count" in branch
    assert "contribution 12" in branch
    assert branch.index("C12 · summary 12") < branch.index("C1 · summary 1\n") if "C1 · summary 1\n" in branch else True
    entry = gcc.context_commit(ws.path, "main", "C7", 4000)
    assert "contribution 7" in entry
    assert entry == gcc.context_commit(ws.path, "main", "7", 4000)
    with pytest.raises(ValueError, match="C1 to C12"):
        gcc.context_commit(ws.path, "main", "C99", 4000)
    assert "print(60)" in gcc.context_log(ws.path, "main", 10, 4000)
    assert "print(1)" not in gcc.context_log(ws.path, "main", 10, 4000)
    assert "commits: 12" in gcc.context_metadata(ws.path, "main", "branch", 4000)
    with pytest.raises(ValueError, match="there are: branch"):
        gcc.context_metadata(ws.path, "main", "nope", 4000)
    with pytest.raises(ValueError, match="there are: main"):
        gcc.context_branch(ws.path, "nope", 4000)


def test_pages_join_to_the_whole(ws: Workspace) -> None:
    write(ws.path, 60)
    whole = gcc.context_log(ws.path, "main", 10_000, 10**6)
    parts, offset = [], 0
    while True:
        page = gcc.context_log(ws.path, "main", 10_000, 500, offset)
        assert len(page) <= 500
        text, _, more = page.rpartition("\n… ")
        if not more.endswith(")") or "more characters: CONTEXT(log=10000, offset=" not in more:
            parts.append(page)
            break
        parts.append(text)
        offset = int(more.rsplit("=", 1)[1][:-1])
    assert "".join(parts) == whole
    assert "nothing more" in gcc.context_log(ws.path, "main", 10_000, 500, 10**7)


def test_other_branches_are_read_from_git(ws: Workspace) -> None:
    write(ws.path, 10, 2)
    head = milestone(ws, "main's")
    ws.move_ref("refs/heads/try/b", head, None)
    ws.switch_head("try/b")
    gcc.write_branch_files(ws.path, "try/b", "another way", [], [log(11)], {})
    milestone(ws, "the branch's")
    (ws.path / ".GCC/branches/main/commit.md").write_text("not what main says")
    assert "contribution 2" in gcc.context_commit(ws.path, "main", "C2", 4000)
    assert "print(10)" in gcc.context_log(ws.path, "main", 20, 4000)
    assert "commits: 2" in gcc.context_metadata(ws.path, "main", "branch", 4000)
    assert "another way" in gcc.context_branch(ws.path, "try/b", 4000)
    ws.switch_head("main")
    assert "another way" in gcc.context_branch(ws.path, "try/b", 4000)
    assert "print(11)" in gcc.context_log(ws.path, "try/b", 20, 4000)
    assert_sound(ws)
    assert git(ws.path, "rev-parse", "try/b~1").strip() == head


def test_the_end_of_another_branchs_log_needs_its_newest_files_alone(ws: Workspace) -> None:
    write(ws.path, 300, size=3500)
    head = milestone(ws, "a long log")
    ws.move_ref("refs/heads/x", head, None)
    ws.switch_head("x")
    blob = git(ws.path, "rev-parse", f"{head}:.GCC/branches/main/log/0001.md").strip()
    (ws.path / ".git/objects" / blob[:2] / blob[2:]).unlink()
    assert "print(300)" in gcc.context_log(ws.path, "main", 9, 5000)
    with pytest.raises(WorkspaceError):
        gcc.context_log(ws.path, "main", 100_000, 5000)
