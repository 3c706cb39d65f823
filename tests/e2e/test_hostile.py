"""The command under hostile cells, files and surroundings: it goes on, or stops with a message; it never loses or lies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

from tests.e2e.harness import ROOT, assert_sound, git, killed, question, rlm

#: The function below the scaffold, that sends whatever it is given.
FORGED = "COMMIT.__closure__[0].cell_contents"


def make(folder: Path, *cells: str, extra: str = "", told: dict[str, str] | None = None) -> Path:
    """Write a task whose script runs these cells; `told` are replies to sub-calls or prompts that match."""
    entries = [{"match": match, "reply": reply} for match, reply in (told or {}).items()]
    entries += [{"reply": f"Go.\n```repl\n{cell}\n```"} for cell in cells]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "material.txt").write_text("hello\n")
    (folder / "script.yaml").write_text(yaml.safe_dump(entries))
    (folder / "task.yaml").write_text(
        "version: 1\nname: hostile\ngoal: Survive.\ncontext: [material.txt]\n"
        "models: {root: {model: offline/scripted, params: {script: script.yaml, ledger: ledger.jsonl}}}\n"
        "limits: {errors: 30, cell_timeout: 10s}\n" + extra
    )
    return folder / "task.yaml"


def start(folder: Path, *more: str, crash: str = "", **environment: str) -> tuple[int, str, str]:
    """Start the task of a folder in its workspace `w`."""
    task = str(folder / "task.yaml")
    return rlm("start", "--task", task, "--workspace", str(folder / "w"), *more, crash=crash, **environment)


def observations(workspace: Path) -> list[str]:
    """Return what the steps showed, from step 1 on."""
    return [row[0] for row in question(workspace, "SELECT observation FROM step WHERE seq > 0 ORDER BY rollout, seq")]


def test_a_cell_that_links_the_runs_files_away_writes_and_reads_nothing_outside(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "main.md").write_text("THE-KEY")
    linked = f"import os\nos.rename('.GCC', 'was')\nos.symlink({str(outside)!r}, '.GCC')\nprint(CONTEXT())"
    make(
        tmp_path,
        linked,
        "print(COMMIT('one'))",
        "FINAL('done')",
        extra="sandbox: {kind: none}\n",
        told={"THE-KEY": "seen"},
    )
    code, out, err = start(tmp_path)
    assert code == 0, out + err
    assert [p.name for p in outside.iterdir()] == ["main.md"]
    assert not any("THE-KEY" in shown for shown in observations(tmp_path / "w"))
    assert_sound(tmp_path / "w")


def test_the_files_derived_from_the_journal_cannot_be_changed_by_a_cell(tmp_path: Path) -> None:
    make(tmp_path, "open('.GCC/branches/main/log.md', 'w')", "open('.GCC/main.md', 'a').write('ok')\nFINAL('done')")
    code, out, err = start(tmp_path)
    assert code == 0, out + err
    assert "Read-only" in observations(tmp_path / "w")[0]


def test_calls_with_wrong_arguments_fail_in_the_cell_and_leave_nothing_unsettled(tmp_path: Path) -> None:
    wrong = [
        "llm_query('sub', system=5)",
        "llm_query('sub', max_tokens='many')",
        "llm_query('sub', max_tokens=-1)",
        "llm_query('sub', model=5)",
        "rlm_query('sub', model=5)",
        "CONTEXT(step='x')",
        f"raise RuntimeError({FORGED}('commit', summary=5))",
    ]
    make(tmp_path, *wrong, "print(COMMIT('with a number', 5))", "FINAL('done')", told={"^sub$": "S"})
    code, out, err = start(tmp_path)
    assert code == 0, out + err
    shown = observations(tmp_path / "w")
    assert all("RuntimeError" in text and "Expected" in text for text in shown[:-2]), shown
    assert "committed C1" in shown[-2] or "committed C2" in shown[-2]
    assert question(tmp_path / "w", "SELECT count(*) FROM call WHERE state != 'done'") == [(0,)]
    assert_sound(tmp_path / "w")


def test_a_child_over_a_file_that_is_not_material_is_refused_and_the_run_goes_on(tmp_path: Path) -> None:
    refs = "{'refs': [['/etc/passwd', 0, 10]]}"
    make(tmp_path, f"print({FORGED}('rlm', prompts=['read'], contexts=[{refs}], model=None))", "FINAL('done')")
    code, out, err = start(tmp_path)
    assert code == 0, out + err
    assert "/etc/passwd is not a document of this task" in observations(tmp_path / "w")[0]


def test_a_variable_whose_restoring_ends_the_repl_is_given_up_and_named(tmp_path: Path) -> None:
    trap = "import os\nclass Trap:\n    def __reduce__(self): return os._exit, (3,)\ntrap, x = Trap(), 1"
    make(tmp_path, trap, "os._exit(1)", "print('blank', 'x' in globals())", "FINAL('done')")
    code, out, err = start(tmp_path)
    assert code == 0, out + err
    assert observations(tmp_path / "w")[2] == "blank False"


def test_what_a_dead_repl_has_lost_is_in_the_next_prompt(tmp_path: Path) -> None:
    told = {r"could not be restored: lines": "```repl\nFINAL('told')\n```"}
    make(tmp_path, "lines = (x for x in 'ab')", "import os\nos._exit(1)", "FINAL('not told')", told=told)
    code, out, err = start(tmp_path)
    assert code == 0, out + err
    assert question(tmp_path / "w", "SELECT answer FROM run") == [("told",)]


def test_a_run_whose_journal_lost_its_end_goes_on_and_says_so(tmp_path: Path) -> None:
    make(tmp_path, "open('a', 'w').write('1')", "open('b', 'w').write('2')", "x = 3", "FINAL('done')")
    code, _, _ = start(tmp_path, crash="step.planned:3")
    assert killed(code)
    (tmp_path / "w/.rlm-agent/journal.db-wal").unlink()
    for file in (tmp_path / "w/.rlm-agent").glob("journal.db-shm"):
        file.unlink()
    code, out, err = start(tmp_path)
    assert code == 0, out + err
    assert "the end of the journal is lost" in err
    assert "refs/rlm-agent/rescue/" in git(tmp_path / "w", "for-each-ref", "--format=%(refname)")
    assert_sound(tmp_path / "w")


def test_a_damaged_journal_is_a_message_and_not_a_traceback(tmp_path: Path) -> None:
    make(tmp_path, "FINAL('done')")
    assert start(tmp_path)[0] == 0
    for file in (tmp_path / "w/.rlm-agent").glob("journal.db*"):
        file.write_bytes(b"x" * 8192)
    for command in (["status"], ["log", "--steps"], ["resume"]):
        code, out, err = rlm(*command, str(tmp_path / "w"), "--json")
        assert code == 1, out + err
        assert "put a copy of the file back" in json.loads(out)["error"]["hint"]
    code, out, _ = rlm("verify", str(tmp_path / "w"), "--json")
    assert code == 1 and "not a database" in out


def test_odd_gitmodules_of_the_work_are_no_fault_of_the_repository(tmp_path: Path) -> None:
    make(
        tmp_path,
        "open('.gitmodules', 'w').write('[submodule \"x\"]\\n url = -u\\n = [')\nprint(COMMIT('odd'))\nFINAL('done')",
    )
    assert start(tmp_path)[0] == 0
    code, out, _ = rlm("verify", str(tmp_path / "w"), "--json")
    assert code == 0 and json.loads(out)["problems"] == []


def test_a_link_out_of_the_workspace_is_no_accepted_file(tmp_path: Path) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text("not made by the run")
    make(
        tmp_path,
        f"import os\nos.symlink({str(outside)!r}, 'report.md')\nFINAL('early')",
        "os.unlink('report.md')\nopen('report.md', 'w').write('made')\nFINAL('done')",
        extra="accept: [{file: report.md}]\n",
    )
    code, out, err = start(tmp_path)
    assert code == 0, out + err
    assert "not accepted yet" in observations(tmp_path / "w")[0]


def test_streams_that_cannot_take_it_change_neither_run_nor_exit_code(tmp_path: Path) -> None:
    shells = {
        "ascii": "PYTHONIOENCODING=ascii {}",
        "closed": "{} >&- 2>&- <&-",
        "stdout gone": "{} | true; exit ${{PIPESTATUS[0]}}",
        "all gone": "{} 2>&1 | true; exit ${{PIPESTATUS[0]}}",
    }
    for name, shell in shells.items():
        folder = tmp_path / name.replace(" ", "-")
        make(folder, "print('é →')", "FINAL('é')")
        command = f"{sys.executable} -P -m agent.cli.main start --task {folder}/task.yaml --workspace {folder}/w"
        done = subprocess.run(
            ["bash", "-c", shell.format(command)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, (name, done.stdout, done.stderr)
        assert question(folder / "w", "SELECT outcome FROM run") == [("done",)], name
