"""What keeps a long run small and honest: folds by the model, search, stuck detection, thinned checkpoints, figures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from state import runs, steps
from state.journal import Journal
from state.lease import take_lease
from state.records import RolloutRecord, RunRecord, StepRecord
from tests.e2e.branching import cell, task
from tests.e2e.harness import ROOT, git, question, rlm
from workspaces.workspace import Workspace

NEW = cell("n = globals().get('n', 0) + 1\nopen('n.txt', 'w').write(str(n))\nprint('saw', n, 'gulls')")


def last_prompt(folder: Path) -> str:
    messages = json.loads((folder / "prompts.jsonl").read_text().splitlines()[-1])
    return "\n".join(content for _, content in messages)


def test_the_model_folds_a_range_and_sees_its_summary(tmp_path: Path) -> None:
    fold = cell(
        "print(fold((1, 3), 'Counted gulls: 1, 2, 3.'))\ntry: fold((2, 4), 'cut')\nexcept RuntimeError as e: print(e)"
    )
    look = cell("print(CONTEXT(step=2))\nprint(CONTEXT(find='gulls 2'))")
    code, _, err = rlm("start", "--task", str(task(tmp_path, NEW, NEW, NEW, NEW, fold, look, cell("FINAL(str(n))"))))
    assert code == 0, err
    told = dict(question(tmp_path / "w", "SELECT seq, observation FROM step"))
    assert "are shown as your summary" in told[5] and "cut the folds 1-3 in two" in told[5]
    assert "saw 2 gulls" in told[6] and "CONTEXT(step=2)" in told[6]
    assert "[steps 1-3, CONTEXT(step=n) shows each]\nCounted gulls: 1, 2, 3." in last_prompt(tmp_path)
    assert "saw 2 gulls" not in last_prompt(tmp_path).partition("CONTEXT(step=2)")[0].partition("<history>")[0]


def test_a_merged_branch_is_one_block_under_its_own_summary(tmp_path: Path) -> None:
    steps_ = (
        NEW,
        cell("BRANCH('side', 'count gulls')"),
        NEW,
        cell("COMMIT('Counted', 'Two gulls on the roof.')"),
        cell("SWITCH('main')\nMERGE('side')"),
    )
    code, _, err = rlm("start", "--task", str(task(tmp_path, *steps_, cell("FINAL('x')"))))
    assert code == 0, err
    folds = question(tmp_path / "w", "SELECT first, last, source, summary FROM fold")
    assert [(f[0], f[1], f[2]) for f in folds] == [(2, 4, "branch")] and "Two gulls on the roof." in folds[0][3]


def test_what_was_done_elsewhere_meanwhile_is_not_folded_with_a_branch(tmp_path: Path) -> None:
    aside = (
        cell("BRANCH('side', 'count gulls')"),
        NEW,
        cell("SWITCH('main')"),
        NEW,
        NEW,
        cell("ABANDON('side', 'no gulls')"),
    )
    code, _, err = rlm("start", "--task", str(task(tmp_path, NEW, *aside, cell("FINAL('x')"))))
    assert code == 0, err
    assert question(tmp_path / "w", "SELECT first, last, source FROM fold") == [(2, 3, "branch")]


@pytest.mark.parametrize("stop", [0, 5])
def test_going_round_in_circles_is_told_then_ended_over_a_restart(tmp_path: Path, stop: int) -> None:
    same = {**cell("print('nothing here')"), "forever": True}
    file = task(tmp_path, NEW, same, limits={"steps": 60})
    if stop:
        code, _, _ = rlm("start", "--task", str(file), crash=f"step.done:{stop + 1}")
        assert code == -signal.SIGKILL
    code, out, _ = rlm("start", "--task", str(file), "--json")
    document = json.loads(out)
    assert code == 4 and document["outcome"]["kind"] == "stuck" and document["step"] == 11
    assert "the same cell showed the same 10 times" in document["outcome"]["reason"]
    prompts = [json.loads(line)[-1][1] for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]
    told = {int(p.rpartition("step: ")[2].split()[0]): "going round in circles" in p for p in prompts}
    assert not told[4] and told[5] and "REWIND(1)" in prompts[-1]


def test_status_tells_how_a_run_folds(tmp_path: Path) -> None:
    fails = cell("raise ValueError('as planned')")
    stray = (
        cell("BRANCH('stray', 'measure whales')"),
        NEW,
        cell("COMMIT('Gulls', 'counted')\nSWITCH('main')\nMERGE('stray')"),
    )
    code, _, err = rlm("start", "--task", str(task(tmp_path, *[NEW] * 14, fails, *stray, cell("FINAL('x')"))))
    assert code == 0, err
    folding = json.loads(rlm("status", str(tmp_path / "w"), "--json")[1])["folding"]
    assert 0 < folding["folded_share"] < 1 and folding["cost"]["calls"] >= 1
    assert folding["penalties"]["failed_steps"] == 1 and folding["penalties"]["out_of_scope"] == ["stray"]
    assert [step for step, _ in folding["prompt_tokens"]] == list(range(1, 20))
    assert "of what was said and seen is folded" in rlm("status", str(tmp_path / "w"))[1]


def long_run(folder: Path, count: int) -> tuple[Workspace, str]:
    """Write a workspace with so many checkpointed steps, as if a run had made them."""
    workspace = Workspace.create(folder / "w", "A goal.", "t", when=1)
    journal = Journal(workspace.path / ".rlm-agent/journal.db")
    (workspace.path / "a").write_text("a")
    tree, commits = workspace.snapshot(), list[str]()
    for seq in range(count + 1):
        commits.append(workspace.store.write_commit(tree, commits[-1:], f"step {seq}\n", seq + 1))
    workspace.store.barrier()
    workspace.move_ref("refs/rlm-agent/steps/R", commits[-1], None)

    def fill(c: Any) -> None:
        runs.create_run(c, RunRecord("RUN", "t", "A goal.", "digest", 1.0))
        runs.create_rollout(c, RolloutRecord("R", None, None, 0, "m", "p", None, 1.0))
        for seq, commit in enumerate(commits):
            steps.begin_step(c, StepRecord("R", seq, "done", 1.0, reply="r", tree=tree, commit=commit, branch="main"))

    journal.write(fill)
    journal.close()
    return workspace, commits[-1]


#: Thins the checkpoints of a workspace, in a process that can be killed.
THIN = """
import sys
from pathlib import Path
from types import SimpleNamespace
from agent.upkeep import Upkeep
from state import steps
from state.journal import Journal
from state.lease import take_lease
from workspaces.workspace import Workspace
path = Path(sys.argv[1])
workspace, journal = Workspace.open(path), Journal(path / ".rlm-agent/journal.db")
take_lease(journal, lambda: 1.0)
runtime = SimpleNamespace(journal=journal, clock=lambda: 2.0, tell=lambda *a, **k: None)
rollout = SimpleNamespace(id="R", depth=0)
scope = SimpleNamespace(runtime=runtime, rollout=rollout, workspace=workspace)
print(Upkeep(scope).after(journal.read(lambda c: steps.last_step(c, "R"))).commit)
workspace.close()
journal.close()
"""


@pytest.mark.parametrize("crash", ["", "thin.written", "thin.done", "thin.ref_moved"])
def test_old_checkpoints_are_thinned_and_a_kill_loses_none_that_is_kept(tmp_path: Path, crash: str) -> None:
    workspace, tip = long_run(tmp_path, 2000)
    command = [sys.executable, "-P", "-c", THIN, str(workspace.path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RLM_AGENT_CRASH": crash}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == (-signal.SIGKILL if crash else 0), done.stderr
    workspace.clear_stale_locks()
    from agent.recover import recover_refs

    journal = Journal(workspace.path / ".rlm-agent/journal.db")
    take_lease(journal, time.time)
    recover_refs(journal, workspace, time.time)
    kept = journal.read(lambda c: steps.checkpointed(c, "R"))
    journal.close()
    there = git(workspace.path, "log", "--format=%H %s", "refs/rlm-agent/steps/R").splitlines()
    assert there == [f"{commit} step {seq}" for seq, commit in reversed(kept)]
    assert len(kept) == (2001 if crash == "thin.written" else 100 + 1001) and (kept[-1][1] == tip) == (
        crash == "thin.written"
    )
    assert git(workspace.path, "for-each-ref", "refs/rlm-agent/rescue") == ""
    workspace.close()
    code, out, err = rlm("verify", str(workspace.path))
    assert code == 0, out + err


def test_a_thinned_step_cannot_be_gone_back_to_and_says_which_can(tmp_path: Path) -> None:
    workspace, _ = long_run(tmp_path, 2000)
    subprocess.run(
        [sys.executable, "-P", "-c", THIN, str(workspace.path)], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True
    )
    workspace.close()
    code, _, err = rlm("rewind", "234", str(workspace.path))
    assert code == 2 and "not kept any more" in err and "230" in err and "240" in err
    assert rlm("show", "234", str(workspace.path))[0] == 0
