"""The kinds of field that a task file has: texts, paths, durations, counts and sizes.

A field's validator turns what was written into what the program uses; paths are read from the folder that
the validation context names as `directory`, and must exist when it says `check_paths`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

from agent import quantities
from agent.variables import WORKSPACE


class Record(BaseModel):
    """A frozen part of a task; unknown keys are mistakes, and the text below a field is its documentation."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


def anchored(path: Path, info: ValidationInfo) -> Path:
    """Make a path absolute, from the task's folder; one that starts in the workspace waits."""
    if str(path).startswith(WORKSPACE):
        return path
    start = (info.context or {}).get("directory", ".")
    return Path(os.path.abspath(os.path.join(start, path.expanduser())))


def existing(path: Path, info: ValidationInfo) -> Path:
    if (info.context or {}).get("check_paths") and WORKSPACE not in str(path) and not path.exists():
        raise ValueError(f"no such file or folder: {path}")
    return path


def nonblank(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise ValueError("is empty")
    return text


Text = Annotated[str, AfterValidator(nonblank)]
AnyPath = Annotated[Path, AfterValidator(anchored)]
Existing = Annotated[Path, AfterValidator(anchored), AfterValidator(existing)]
Duration = Annotated[float, BeforeValidator(quantities.seconds, json_schema_input_type=float | str), Field(gt=0)]
Count = Annotated[int, BeforeValidator(quantities.count, json_schema_input_type=int | str), Field(gt=0)]
Size = Annotated[int, BeforeValidator(quantities.size, json_schema_input_type=int | str), Field(ge=64 << 20)]
