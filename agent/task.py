"""What the user wrote: `task.yaml` as one frozen, validated record.

A `Task` that exists is complete and consistent: defaults are filled in, units are read, paths are absolute,
variables are expanded (but for `${WORKSPACE}`, which waits for `in_workspace`). Loading what `dump_yaml`
wrote gives an equal Task.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import msgspec
import yaml
from pydantic import (
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from agent.errors import TaskError
from agent.fields import AnyPath, Count, Duration, Existing, Record, Size, Text, anchored, existing
from agent.mistakes import mistakes_of, task_error
from agent.models.base import ModelSpec
from agent.taskfile import parse, read_text
from agent.taskmodels import Models
from agent.variables import (
    WORKSPACE,
    builtin_variables,
    escape_text,
    expand_document,
    map_variables,
    unescape_text,
)

VERSIONS = (1,)
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"


class ContextItem(Record):
    """Material that the run may read: a file, a folder or a glob. A bare text is its path."""

    path: Existing
    """File, folder or glob, relative to the task file. Opened read-only, never copied."""
    include: tuple[Text, ...] = ("**/*",)
    """In a folder: only the files that match one of these globs."""
    exclude: tuple[Text, ...] = ()
    """In a folder: leave out the files that match one of these globs."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        """Take a bare path; split `data/*.txt` into the folder and what to include."""
        item = {"path": value} if isinstance(value, str) else value
        if not isinstance(item, dict) or "include" in item or not re.search(r"[*?\[]", str(item.get("path", ""))):
            return item
        parts = Path(item["path"]).parts
        first = next(n for n, part in enumerate(parts) if re.search(r"[*?\[]", part))
        return {**item, "path": str(Path(*parts[:first])), "include": ["/".join(parts[first:])]}


class Clone(Record):
    """A workspace that starts as a clone of a repository."""

    clone: Existing
    """The repository to clone. It is never touched."""


class Limits(Record):
    """Caps over the whole tree of rollouts. They may be changed while the run goes on."""

    steps: Count = 200
    """Steps of the root rollout."""
    max_wait: Duration = 1800.0
    """How long an unreachable model is waited for."""
    cost_usd: float | None = Field(default=None, gt=0)
    """USD for all calls together."""
    tokens: Count | None = None
    """Tokens, prompts and replies, for all calls together."""
    wall_time: Duration | None = None
    """Time the run may be active."""
    depth: Annotated[int, Field(ge=0)] = 2
    """How deep child rollouts may nest; 0: `rlm_query` is a plain call."""
    calls: Count = 10_000
    """Calls of all rollouts together."""
    concurrency: Count = 32
    """Requests in flight at once, per model."""
    cell_timeout: Duration = 120.0
    """Compute time of one cell; waiting for calls does not count."""
    prompt_tokens: Annotated[Count, Field(ge=1_000)] = 8_000
    """Size of the root prompt, a hard cap."""
    output_chars: Count = 8_192
    """Characters of a cell's output that are shown."""
    errors: Count = 5
    """Failed steps in a row before the run counts as stuck."""

    def changed(self, key: str, value: str) -> Limits:
        """Give these limits with one changed, as in `limits KEY=VALUE`; raise TaskError for a mistake."""
        try:
            return Limits.model_validate({**self.model_dump(), key: value})
        except ValidationError as error:
            first = min(mistakes_of(error, Limits))
            raise TaskError(f"limits.{first.message}", "`rlm-agent schema` lists the limits") from error


class FoldSettings(Record):
    """How the older steps are folded."""

    keep_steps: Count = 5
    """The latest steps that stay in the prompt in full."""
    commit_steps: Count = 30
    """Steps without a commit after which a fold makes one, if files have changed; without a change, three times as many."""


class Sandbox(Record):
    """What holds the REPL's process in."""

    kind: Literal["auto", "bubblewrap", "landlock", "none"] = "auto"
    """`auto` takes bubblewrap where it works, else Landlock, else refuses."""
    network: bool = False
    """Whether cells reach the network."""
    memory: Size = 2 << 30
    """Bytes that a cell's process may use."""


class Check(Record):
    """One condition for being done: a file that must exist, or a command that must exit with 0."""

    file: Text | None = None
    """A file in the workspace that must exist and not be empty."""
    run: Text | None = None
    """A command, run in the sandbox, in the workspace."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.file is None) == (self.run is None):
            raise ValueError("needs one of `file: NAME` and `run: COMMAND`")
        return self


class Tool(Record):
    """A function that cells can call; it runs on the host, outside the sandbox."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """The function's name in cells."""
    python: Text
    """Where it is: `file.py:function`, the file relative to the task file."""
    to: Literal["all", "root", "sub"] = "all"
    """Which rollouts have it."""
    repeatable: bool = False
    """It may be run again after a crash, because it only reads."""

    @field_validator("python")
    @classmethod
    def _anchor(cls, value: str, info: ValidationInfo) -> str:
        file, colon, function = value.rpartition(":")
        if not colon or not function.isidentifier():
            raise ValueError("must be `file.py:function`")
        return f"{existing(anchored(Path(file), info), info)}:{function}"


def _workspace_kind(value: Any) -> str:
    return "<clone>" if isinstance(value, (dict, Clone)) else "<path>"


class Task(Record):
    """A task: the goal, the material, and the bounds within which a run works on it."""

    version: Literal[1] = 1
    """The format of this file."""
    name: Annotated[str, Field(pattern=rf"^{NAME}$")]
    """Names the run and its workspace; default: the file's stem."""
    goal: Text
    """What is to be done, in your words."""
    context: tuple[ContextItem, ...] = ()
    """The material to work on."""
    workspace: (
        Annotated[
            Annotated[AnyPath, Tag("<path>")] | Annotated[Clone, Tag("<clone>")],
            Discriminator(_workspace_kind),
        ]
        | None
    ) = None
    """The folder to work in, a git repository that is made; default: one in the state folder."""
    models: Models
    """Which models are asked."""
    limits: Limits = Limits()
    """What the run may use."""
    fold: FoldSettings = FoldSettings()
    """How history is kept short."""
    sandbox: Sandbox = Sandbox()
    """How cells are held in."""
    accept: tuple[Check, ...] = ()
    """The run is done only when all of these hold."""
    tools: tuple[Tool, ...] = ()
    """Functions of yours that cells can call."""
    reuse: bool = False
    """Whether a sub-call that was answered before, anywhere in the run, gets the same answer again, unpaid."""
    directory: AnyPath = Field(default_factory=Path.cwd)
    """Where relative paths and `${TASK_DIR}` start; default: the file's folder."""

    @model_validator(mode="after")
    def _unambiguous(self) -> Self:
        names = [tool.name for tool in self.tools]
        if len(set(names)) < len(names):
            raise ValueError("two tools have the same name")
        return self

    @classmethod
    def load(cls, path: str | Path, *, check_paths: bool = True) -> Task:
        """Read and check a task file.

        Raises TaskError with all mistakes, one a line, each `file:line:column: where: what`.
        `check_paths=False` lets material that is gone pass, for a look at a run on another machine.
        """
        path = Path(path)
        return cls.loads(read_text(path), str(path), path.absolute().parent, check_paths=check_paths)

    @classmethod
    def loads(cls, text: str, file: str, directory: Path, *, check_paths: bool = True) -> Task:
        """Check the text of a task file called `file`; see `load`."""
        document = parse(text, file)
        _check_version(document.data.get("version", "1"), file, document.place(("version",)))
        start = Path(os.path.abspath(directory / str(document.data.get("directory", "."))))
        data = expand_document(document, builtin_variables(str(start)), os.environ)
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(file).stem).strip("-._")[:64] or "task"
        data = map_variables({"name": stem, **data, "version": 1, "directory": str(start)}, unescape_text)
        try:
            task = cls.model_validate(data, context={"directory": start, "check_paths": check_paths})
        except ValidationError as error:
            seen = {mistake.place for mistake in document.mistakes}  # what follows from these is no news
            more = [m for m in mistakes_of(error, cls, document, data) if m.place not in seen]
            raise task_error(file, [*document.mistakes, *more]) from error
        if document.mistakes:
            raise task_error(file, document.mistakes)
        return task

    def in_workspace(self, workspace: Path) -> Task:
        """Give this task with `${WORKSPACE}` filled in."""
        data = map_variables(self._plain(), lambda text: text.replace(WORKSPACE, str(workspace)))
        return Task.model_validate(data)

    def resolved(self) -> dict[str, Any]:
        """Give everything as plain data, ready for YAML or JSON: absolute paths, seconds, bytes, no
        defaults left.
        """
        data: dict[str, Any] = map_variables(self._plain(), escape_text)
        return data

    def dump_yaml(self) -> str:
        """Write the task as `.rlm-agent/task.yaml` keeps it; `load` gives it back from any folder."""
        head = "# The task as it was resolved. Limits may be edited here while the run goes on.\n"
        data = self.resolved()
        readable = "\x85" not in json.dumps(
            data, ensure_ascii=False
        )  # written as it is, it is read back as a line's end
        return head + yaml.safe_dump(data, sort_keys=False, allow_unicode=readable, width=120)

    @property
    def digest(self) -> str:
        """The sha256 of what the task says (hex): equal for equal tasks, wherever they were loaded from."""
        said = {key: value for key, value in self._plain().items() if key != "directory"}
        return hashlib.sha256(json.dumps(said, sort_keys=True, ensure_ascii=False).encode()).hexdigest()

    def _plain(self) -> dict[str, Any]:
        data: dict[str, Any] = _without_none(self.model_dump(exclude={"models"}, exclude_none=True))
        models = {name: _without_none(getattr(self.models, name)) for name in Models.model_fields}
        return {**data, "models": models}


def task_schema() -> dict[str, Any]:
    """Give the JSON Schema of task.yaml."""
    schema = Task.model_json_schema()
    schema["required"] = [name for name in schema["required"] if name != "name"]  # the file's stem stands in
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "rlm-agent task"}


def _check_version(version: object, file: str, place: tuple[int, int]) -> None:
    if str(version) not in {str(known) for known in VERSIONS}:
        known = ", ".join(str(number) for number in VERSIONS)
        raise TaskError(
            f"{file}:{place[0]}:{place[1]}: version: {str(version)[:40]} is not understood, only {known}",
            "a newer rlm-agent may understand it",
        )


def _without_none(value: Any) -> Any:
    if isinstance(value, ModelSpec):
        return _without_none({key: item for key, item in msgspec.structs.asdict(value).items() if item != {}})
    if isinstance(value, dict):
        return {
            key: item if key == "params" else _without_none(item) for key, item in value.items() if item is not None
        }
    if isinstance(value, (list, tuple)):
        return [_without_none(item) for item in value]
    return str(value) if isinstance(value, Path) else value
