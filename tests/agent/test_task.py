"""The task file: what a right one becomes, and what is said about a wrong one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from agent.errors import TaskError
from agent.models.base import ModelSpec
from agent.starter import starter_task
from agent.task import Clone, Limits, Task, task_schema

MINIMAL = "goal: count\nmodels: offline/explorer\n"
Load = Callable[[str], Task]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("a")

    def from_text(text: str) -> Task:
        (tmp_path / "task.yaml").write_text(text)
        return Task.load(tmp_path / "task.yaml")

    return from_text


@pytest.fixture
def mistakes(load: Load, tmp_path: Path) -> Callable[[str], list[str]]:
    def of_text(text: str) -> list[str]:
        with pytest.raises(TaskError) as caught:
            load(text)
        assert caught.value.exit_code == 2 and caught.value.kind == "task" and caught.value.hint
        return [line.removeprefix(f"{tmp_path}/") for line in str(caught.value).split("\n")]

    return of_text


def test_defaults_are_filled_in(load: Load) -> None:
    task = load(MINIMAL)
    assert (task.name, task.version, task.workspace, task.context) == ("task", 1, None, ())
    assert task.limits == Limits(steps=200, max_wait=1800, depth=2, calls=10_000, concurrency=32, cell_timeout=120)
    assert (task.limits.prompt_tokens, task.limits.output_chars, task.limits.errors) == (8000, 8192, 5)
    assert (task.fold.keep_steps, task.sandbox.kind, task.sandbox.memory) == (5, "auto", 2 << 30)
    assert not task.sandbox.network


def test_quantities_have_units(load: Load) -> None:
    limits = (
        "{steps: 1_000, max_wait: 90, wall_time: 1h30m, tokens: 2M, prompt_tokens: 8k, cell_timeout: 1.5s, calls: 010}"
    )
    task = load(MINIMAL + f"limits: {limits}\nsandbox: {{memory: 500MB, network: no}}\n")
    assert (task.limits.steps, task.limits.max_wait, task.limits.wall_time) == (1000, 90.0, 5400.0)
    assert (task.limits.tokens, task.limits.prompt_tokens, task.limits.cell_timeout) == (2_000_000, 8000, 1.5)
    assert task.limits.calls == 10  # not octal 8
    assert (task.sandbox.memory, task.sandbox.network) == (500_000_000, False)


def test_words_that_yaml_would_turn_into_other_things_stay_words(load: Load) -> None:
    assert load(MINIMAL + "name: no\n").name == "no"
    assert load(MINIMAL + "name: 1.10\n").name == "1.10"
    assert load("goal: 2024-01-01\nmodels: offline/explorer\n").goal == "2024-01-01"


def test_models_are_names_or_mappings_and_default_to_each_other(load: Load) -> None:
    online = load("goal: g\nmodels: {root: a/b, fallbacks: [c/d, {model: e/f, api_key_env: MY_KEY}]}\n").models
    assert online.root == online.sub == online.fold == ModelSpec("a/b")
    assert online.fallbacks == (ModelSpec("c/d"), ModelSpec("e/f", api_key_env="MY_KEY"))
    offline = load("goal: g\nmodels: {root: offline/explorer, sub: local/smollm2}\n").models
    assert (offline.sub.model, offline.fold.model) == ("local/smollm2", "offline/digest")
    full = load(
        "goal: g\nmodels: {root: {model: a/b, params: {t: 0.5, n: null, y: [1, yes, true]}, price: {input: 1, output: 2}}}\n"
    )
    assert full.models.root.params == {"t": 0.5, "n": None, "y": [1, "yes", True]}
    assert full.models.root.price == {"input": 1.0, "output": 2.0}


def test_paths_start_at_the_file_and_globs_are_split(load: Load, tmp_path: Path) -> None:
    task = load(MINIMAL + "context: [data, {path: data/*.txt}, {path: data, include: ['*.md']}]\nworkspace: ./w\n")
    assert [item.path for item in task.context] == [tmp_path / "data"] * 3
    assert [item.include for item in task.context] == [("**/*",), ("*.txt",), ("*.md",)]
    assert task.workspace == tmp_path / "w"
    assert load(MINIMAL + "workspace: {clone: data}\n").workspace == Clone(clone=tmp_path / "data")


def test_variables(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHERE", "data")
    monkeypatch.setenv("ODD", "${x}")
    task = load(
        MINIMAL + "context: ['${WHERE}', '${TASK_DIR}/data', '${PYTHON_STDLIB}', '${WORKSPACE}/in']\n"
        "accept: [{run: '${PYTHON} ${WORKSPACE}/c.py $HOME ${n:-1} $${HOME} ${ODD}'}]\n"
    )
    data = tmp_path / "data"
    stdlib = Path(sysconfig.get_path("stdlib"))
    assert [item.path for item in task.context] == [data, data, stdlib, Path("${WORKSPACE}/in")]
    assert task.accept[0].run == f"{sys.executable} ${{WORKSPACE}}/c.py $HOME ${{n:-1}} ${{HOME}} ${{x}}"
    placed = task.in_workspace(tmp_path / "w")
    assert placed.context[3].path == tmp_path / "w" / "in"
    assert str(placed.accept[0].run).split()[1] == f"{tmp_path}/w/c.py"
    assert Task.loads(task.dump_yaml(), "x.yaml", Path("/")) == task


def test_every_mistake_is_told_at_its_place(mistakes: Callable[[str], list[str]]) -> None:
    text = """\
version: 1
goal: x
limits:
  max_dept: 3
  cost_usd: -1
  calls: 0
  wall_time: 1:30
models: offline/explorer
steps: 4
context: [nowhere, "${NOT_SET_ANYWHERE}/x"]
sandbox: {kind: jail, memory: 1k, network: maybe}
accept: [{}]
"""
    assert mistakes(text) == [
        "task.yaml:4:3: limits.max_dept: unknown key, did you mean 'depth'?",
        "task.yaml:5:13: limits.cost_usd: must be more than 0",
        "task.yaml:6:10: limits.calls: must be more than 0",
        "task.yaml:7:14: limits.wall_time: '1:30' is not a duration; write 30m, 120s or 1h30m (a bare number is seconds)",
        "task.yaml:9:1: steps: unknown key, did you mean 'limits.steps'?",
        mistakes("goal: x\nmodels: a/b\ncontext: [nowhere]\n")[0].replace(":3:11:", ":10:11:"),
        "task.yaml:10:20: context[1]: ${NOT_SET_ANYWHERE} is not set in the environment; "
        "export it, or write $${NOT_SET_ANYWHERE} for the text itself",
        "task.yaml:11:17: sandbox.kind: must be one of 'auto', 'bubblewrap', 'landlock', 'none'",
        "task.yaml:11:31: sandbox.memory: must be at least 64 MiB",
        "task.yaml:11:44: sandbox.network: must be true or false",
        "task.yaml:12:10: accept[0]: needs one of `file: NAME` and `run: COMMAND`",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "task.yaml:1:1: the file is empty"),
        ("# only a comment\n", "task.yaml:1:1: the file is empty"),
        ("- a\n", "task.yaml:1:1: expected `key: value` lines at the top, found a list"),
        ("hello\n", "task.yaml:1:1: expected `key: value` lines at the top, found a single value"),
        ("goal: x\n\tmodels: y\n", "a tab; YAML indents with spaces only"),
        ("goal: x\ngoal: y\nmodels: a/b\n", "task.yaml:2:1: goal: given twice, first at line 1"),
        ("goal: a: b\n", "task.yaml:1:8: a second `: ` in one line"),
        ("goal: [a\n", "task.yaml:2:1: not YAML"),
        ("goal: x\n---\ngoal: y\n", "task.yaml:2:1: a second document"),
        ("goal: x\nmodels: !!python/object:os.system {}\n", "task.yaml:2:9: models: the tag"),
        ("goal: &a [*a]\n", "aliases (`*name`) that repeat without end"),
        ("goal: " + "[" * 5000, "nested too deeply"),
        ("goal: x\x07\n", "task.yaml:1:8: a character that YAML does not allow"),
        ("version: 2\nfuture: [1]\n", "task.yaml:1:10: version: 2 is not understood, only 1"),
        ("models: a/b\n", "task.yaml:1:1: goal: missing"),
        ("goal: '  '\nmodels: a/b\n", "task.yaml:1:7: goal: is empty"),
        ("goal: x\n", "task.yaml:1:1: models: missing; write `models:"),
        (
            "goal: x\nmodels: {root: a, sup: b}\n",
            "task.yaml:2:19: models.sup: unknown key, did you mean 'sub'?",
        ),
        (
            "goal: x\nmodels: {root: {model: a, api_bas: b}}\n",
            "models.root.api_bas: unknown key, did you mean 'api_base'?",
        ),
        ("goal: x\nmodels: a\nlimits: [1]\n", "task.yaml:3:9: limits: must be a mapping"),
        ("goal: x\nmodels: a\ncontext: data\n", "task.yaml:3:10: context: must be a list"),
        (
            "goal: x\nmodels: a\nworkspace: {clone: gone}\n",
            "task.yaml:3:20: workspace.clone: no such file or folder",
        ),
        ("goal: x\nmodels: a\nworkspace: '${WORKSPACE}/x'\n", "cannot be part of the workspace's own path"),
        ("goal: x\nmodels: a\nname: ../up\n", "task.yaml:3:7: name: must be a short name"),
        ("goal: x\nmodels: a\nlimits: {cost_usd: .nan}\n", "limits.cost_usd: must be a number"),
        (
            "goal: x\nmodels: a\ntools: [{name: f, python: x.py}]\n",
            "tools[0].python: must be `file.py:function`",
        ),
    ],
)
def test_a_wrong_file_is_explained(text: str, said: str, mistakes: Callable[[str], list[str]]) -> None:
    assert said in mistakes(text)[0]


def test_a_key_is_never_repeated_in_an_error(mistakes: Callable[[str], list[str]]) -> None:
    told = "\n".join(
        mistakes("goal: x\nmodels: {root: {model: a, api_key: sk-123}, sub: {model: a, api_key_env: sk-456}}\n")
    )
    assert "api_key_env" in told and "NAME of an environment variable" in told
    assert "sk-" not in told


def test_what_is_no_file_is_explained(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="is a folder"):
        Task.load(tmp_path)
    with pytest.raises(TaskError, match=r"nothing\.yaml: no such file"):
        Task.load(tmp_path / "nothing.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: x\ngoal: caf\xe9\n")
    with pytest.raises(TaskError, match=r"latin\.yaml:2:10: not UTF-8 text"):
        Task.load(tmp_path / "latin.yaml")
    (tmp_path / "big.yaml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(TaskError, match="larger than 1 MiB"):
        Task.load(tmp_path / "big.yaml")
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode())
    assert Task.load(tmp_path / "bom.yaml").name == "bom"


def test_missing_material_can_be_let_pass(tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text(MINIMAL + "context: [gone]\n")
    assert Task.load(tmp_path / "task.yaml", check_paths=False).context[0].path == tmp_path / "gone"


def test_the_resolved_task_is_the_same_from_any_folder(load: Load, tmp_path: Path) -> None:
    task = load(
        "name: n\ngoal: |\n  über  \n\n  ${HOME} 'x' \"y\"\nmodels: {root: {model: a/b, params: {t: 1e-5, s: '1'}}, sub: c/d}\n"
        "context: [data]\nworkspace: w\nlimits: {tokens: 2M, wall_time: 8h}\naccept: [{run: './x $${A} ${WORKSPACE}'}]\n"
    )
    other = tmp_path / "elsewhere" / ".rlm-agent"
    other.mkdir(parents=True)
    (other / "task.yaml").write_text(task.dump_yaml())
    again = Task.load(other / "task.yaml")
    assert again == task and again.digest == task.digest and again.resolved() == task.resolved()
    assert json.loads(json.dumps(task.resolved())) == task.resolved()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    goal=st.text(min_size=1).filter(lambda s: s.strip() and "\0" not in s),
    run=st.text(alphabet="$${}WORKSPACE{}ab ", min_size=1).filter(str.strip),
    params=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=6,
    ),
)
def test_any_task_survives_its_dump(goal: str, run: str, params: object) -> None:
    root = {"model": "a/b", "params": {"x": params}}
    task = Task(name="n", goal=goal, models={"root": root}, accept=[{"run": run}])  # type: ignore[arg-type,list-item]
    assert Task.loads(task.dump_yaml(), "task.yaml", Path("/")) == task


def test_the_digest_follows_the_meaning_alone(load: Load) -> None:
    first = load(MINIMAL + "limits: {tokens: 2M}\n").digest
    assert first == load("# hi\nlimits:\n  tokens: 2000000\n" + MINIMAL).digest
    assert first != load(MINIMAL + "limits: {tokens: 3M}\n").digest
    assert first != load(MINIMAL.replace("count", "Count") + "limits: {tokens: 2M}\n").digest


def test_a_task_cannot_be_changed(load: Load) -> None:
    with pytest.raises(ValidationError):
        load(MINIMAL).limits.steps = 5  # type: ignore[misc]


def test_one_limit_can_be_changed() -> None:
    assert Limits().changed("wall_time", "2h").wall_time == 7200
    assert Limits(tokens=5).changed("steps", "1k") == Limits(tokens=5, steps=1000)
    with pytest.raises(TaskError, match=r"limits\.wall_tim: unknown key, did you mean 'wall_time'"):
        Limits().changed("wall_tim", "2h")
    with pytest.raises(TaskError, match=r"limits\.steps: must be more than 0"):
        Limits().changed("steps", "0")


def test_the_schema_explains_every_key() -> None:
    schema = task_schema()
    assert schema["required"] == ["goal", "models"]
    records = [schema, *schema["$defs"].values()]
    fields = [field for record in records for field in record["properties"].values()]
    assert len(fields) > 40
    for record in records:
        assert record["additionalProperties"] is False
        for name, field in record["properties"].items():
            assert field.get("description"), f"{record['title']}.{name} has no docstring"


def test_the_starter_is_a_task(tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text(starter_task("my-task"))
    task = Task.load(tmp_path / "task.yaml")
    assert (task.name, task.models.root.model) == ("my-task", "offline/explorer")


def test_loading_is_light() -> None:
    heavy = "{'litellm', 'git', 'sqlalchemy', 'xllamacpp', 'rich', 'typer'}"
    code = f"import sys, agent.task; sys.exit(', '.join({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert done.stderr.strip() == ""


def test_the_dump_is_plain_yaml(load: Load) -> None:
    assert yaml.safe_load(load(MINIMAL).dump_yaml())["limits"]["steps"] == 200


def test_a_prompt_bound_too_small_for_the_rules_is_refused() -> None:
    with pytest.raises(TaskError, match="prompt_tokens: must be at least 1000"):
        Limits().changed("prompt_tokens", "100")
