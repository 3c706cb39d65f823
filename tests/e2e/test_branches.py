"""BRANCH, SWITCH, MERGE, ABANDON and explore from cells, over kills: plain git tells the same story as an undisturbed run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.branching import cell, task
from tests.e2e.harness import assert_sound, end_state, git, killed, question, rlm

TWO_IDEAS = (
    cell("open('a.txt', 'w').write('base\\n')\nprint(COMMIT('Base', 'a.txt is there'))"),
    cell(
        "x = 41\nopen('draft.txt', 'w').write('not committed yet')\nprint(BRANCH('idea/one', 'see whether a.txt can grow'))"
    ),
    cell("open('a.txt', 'a').write('one\\n')\nprint(COMMIT('Grow', 'a.txt has two lines'))"),
    cell("open('b.txt', 'w').write('b')\nprint(SWITCH('main'))\nimport os\nprint(sorted(os.listdir()))"),
    cell("print(BRANCH('idea/two', 'another try'))\nopen('c.txt', 'w').write('c')\nprint(SWITCH('main'))"),
    cell("print(MERGE('idea/one'))\nprint(MERGE('idea/one'))\nprint(open('b.txt').read(), x + 1)"),
    cell("print(ABANDON('idea/two', 'c is of no use'))\nprint(CONTEXT())\nprint(CONTEXT(branch='idea/two'))"),
    cell("answer.update(content='both tried', ready=True)"),
)


def observations(workspace: Path) -> list[str]:
    rows = question(
        workspace, "SELECT observation FROM step JOIN rollout r ON r.id = rollout AND r.parent IS NULL ORDER BY seq"
    )
    return [str(row[0] or "") for row in rows][1:]


def test_two_ideas_are_tried_merged_and_abandoned(tmp_path: Path) -> None:
    code, _, err = rlm("start", "--task", str(task(tmp_path, *TWO_IDEAS)))
    workspace = tmp_path / "w"
    assert code == 0, err
    told = observations(workspace)
    assert "'a.txt'" in told[3] and "'draft.txt'" in told[3] and "b.txt" not in told[3]
    assert "merged idea/one into main" in told[5] and "merged already" in told[5] and "b 42" in told[5]
    assert "idea/two: abandoned (c is of no use)" in told[6] and "another try" in told[6]
    assert "idea/one: merged (a.txt has two lines)" in told[6]
    assert_sound(workspace)
    parents = git(workspace, "log", "-1", "--merges", "--format=%p %s", "main").split()
    assert len(parents) > 3 and git(workspace, "merge-base", "main", "idea/one") == git(
        workspace, "rev-parse", "idea/one"
    )
    log = (workspace / ".GCC/branches/main/log.md").read_text()
    assert log.count("(from branch idea/one)") == 2 and log.count("## Step 4\n") == 1
    assert "Branch idea/two: another try" in git(workspace, "log", "--format=%s", "idea/two")


@pytest.mark.parametrize("crash", ["commit.returned", "commit.objects:3", "commit.done:2", "commit.ref_moved:3", "commit.settled",
    "commit.applied:2", "commit.applied:5", "step.done:5", "checkpoint.objects:6"])  # fmt: skip
def test_a_kill_changes_nothing(tmp_path: Path, crash: str) -> None:
    whole, cut = task(tmp_path / "whole", *TWO_IDEAS), task(tmp_path / "cut", *TWO_IDEAS)
    assert rlm("start", "--task", str(whole))[0] == 0
    code, _, err = rlm("start", "--task", str(cut), crash=crash)
    assert killed(code), (code, err)
    code, _, err = rlm("resume", str(tmp_path / "cut/w"))
    assert code == 0, err
    assert_sound(tmp_path / "cut/w")
    assert end_state(tmp_path / "cut/w") == end_state(tmp_path / "whole/w")


CONFLICT = (
    cell("open('a.txt', 'w').write('base\\n')\nBRANCH('x', 'change a')\nopen('a.txt', 'w').write('theirs\\n')\nSWITCH('main')"),
    cell("open('a.txt', 'w').write('ours\\n')\nprint(MERGE('x'))\nprint(open('a.txt').read())"),
    cell("try: COMMIT('too early')\nexcept RuntimeError as e: print(e)\ntry: SWITCH('x')\nexcept RuntimeError as e: print(e)"),
    cell("open('a.txt', 'w').write('both\\n')\nprint(COMMIT('Both', 'a.txt has both'))\nprint(MERGE('x'))"),
    cell("FINAL(open('a.txt').read())"),
)  # fmt: skip


@pytest.mark.parametrize("crash", ["", "step.done:2", "commit.applied:6", "step.replied:4"])
def test_a_merge_with_conflicts_waits_until_it_is_resolved(tmp_path: Path, crash: str) -> None:
    file = task(tmp_path, *CONFLICT)
    code, _, err = rlm("start", "--task", str(file), crash=crash)
    if crash:
        assert killed(code)
        code, _, err = rlm("resume", str(tmp_path / "w"))
    assert code == 0, err
    told = observations(tmp_path / "w")
    assert "conflicts in a.txt" in told[1] and "<<<<<<<" in told[1]
    assert "conflict markers are left in a.txt" in told[2] and "a merge of x waits" in told[2]
    assert "committed C" in told[3] and "merged already" in told[3]
    assert_sound(tmp_path / "w")
    assert git(tmp_path / "w", "log", "--merges", "--format=%s", "main") == "Both\n"


def test_an_abandoned_merge_puts_the_files_back(tmp_path: Path) -> None:
    entries = (
        *CONFLICT[:2],
        cell("print(MERGE('x', abandon=True))\nprint(open('a.txt').read())\nprint(MERGE('x'))"),
        cell("FINAL('over')"),
    )
    code, _, err = rlm("start", "--task", str(task(tmp_path, *entries)))
    assert code == 0, err
    told = observations(tmp_path / "w")[2]
    assert "is undone" in told and "ours" in told and "conflicts in a.txt" in told
    assert_sound(tmp_path / "w")


EXPLORE = (
    cell("open('a.txt', 'w').write('base\\n')\nopen('note.txt', 'w').write('seen by all')"),
    cell(
        "r = explore([('way/left', 'go left', 'ask left'), ('way/right', 'go right', 'ask right')])\n"
        "for e in r: print(repr(e))\nprint(MERGE('way/left'))\nABANDON('way/right', 'left is enough')"
    ),
    cell("print(open('left.txt').read())\nFINAL(str(r[0]))"),
)


def explorers(entries: tuple[dict[str, object], ...]) -> tuple[dict[str, object], ...]:
    """Answer the children by what their task says, and the root by its steps."""
    children = []
    for side in ("left", "right"):
        code = f"open('{side}.txt', 'w').write(open('note.txt').read() + ' {side}')\nprint(COMMIT('Went {side}'))\nFINAL('{side} works')"
        children.append({"match": f"(?s)ask {side}.*", **cell(code)})
    return (*children, *entries)


@pytest.mark.parametrize("crash", ["", "step.done:3", "commit.done:4", "commit.applied:3", "cell.finished:2"])
def test_children_explore_in_worktrees_of_their_own(tmp_path: Path, crash: str) -> None:
    file = task(tmp_path, *explorers(EXPLORE))
    code, _, err = rlm("start", "--task", str(file), crash=crash)
    workspace = tmp_path / "w"
    if crash:
        assert killed(code), err
        code, _, err = rlm("resume", str(workspace))
    assert code == 0, err
    told = observations(workspace)
    assert "way/left" in told[1] and "left works" in told[1] and "merged way/left into main" in told[1]
    assert "seen by all left" in told[2]
    assert_sound(workspace)
    assert git(workspace, "worktree", "list").count("\n") == 1
    assert git(workspace, "show", "way/right:right.txt") == "seen by all right"
    asked = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    assert len(asked) == len({line["hash"] for line in asked}), "nothing was asked twice"
