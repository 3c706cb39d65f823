"""The names a cell can use and how a cell is run: blocks in order, the last expression shown, errors with its own lines.

Variables that were set before an exception stay. The scaffold (`context`, `llm_query`, `answer`, …) is laid anew before each
cell, so a cell that overwrites a name harms only itself.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import linecache
import random
import sys
import traceback
import types
import warnings
from typing import Any

BLANK_ANSWER = {"content": "", "ready": False}


class Namespace:
    """The REPL's `__main__`."""

    def __init__(self, scaffold: dict[str, Any]) -> None:
        self.module = types.ModuleType("__main__")
        sys.modules["__main__"] = self.module
        self.names: dict[str, Any] = self.module.__dict__
        self.scaffold = scaffold
        self.names["answer"] = dict(BLANK_ANSWER)
        self.lay_scaffold()

    def lay_scaffold(self) -> None:
        """Put the scaffold's names back, whatever a cell did to them."""
        self.names.update(self.scaffold)
        if not isinstance(self.names.get("answer"), dict):
            self.names["answer"] = dict(BLANK_ANSWER)

    def run(self, blocks: list[str], step: int) -> bool:
        """Run the blocks in order, stop at the first exception, print what is to be seen; True when all went well."""
        self.lay_scaffold()
        random.seed(step)
        for number, code in enumerate(blocks, 1):
            name = f"<step {step}>" if len(blocks) == 1 else f"<step {step}, block {number}>"
            linecache.cache[name] = (len(code), None, [line + "\n" for line in code.split("\n")], name)
            try:
                self._run_block(code, name)
            except BaseException as error:
                _print_error(error, name)
                return False
        return True

    def answer(self) -> tuple[str, bool]:
        """Return the current answer's content as text and whether it is ready."""
        answer = self.names.get("answer")
        if not isinstance(answer, dict):
            return ("", False) if answer is None else (str(answer), False)
        content = answer.get("content", "")
        if content is None:
            content = ""
        return content if isinstance(content, str) else str(content), bool(answer.get("ready"))

    def variables(self) -> list[tuple[str, str, int]]:
        """Return (name, type, size) of what the cells have made; size is len() where there is one, else -1."""
        rows = []
        for name, value in self.names.items():
            if name.startswith("_") or name in self.scaffold or name == "answer" or inspect.ismodule(value):
                continue
            try:
                size = len(value)
            except Exception:
                size = -1
            rows.append((name, type(value).__name__, size))
        return rows

    def _run_block(self, code: str, name: str) -> None:
        tree = ast.parse(code, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.simplefilter("ignore", ResourceWarning)  # open(…).write(…) is how models write files
            warnings.showwarning = _show_warning  # type: ignore[assignment]
            if tree.body:
                self._execute(compile(tree, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
            if isinstance(last, ast.Expr):
                shown = ast.Expression(last.value)
                value = self._execute(compile(shown, name, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
                if value is not None:
                    print(repr(value))

    def _execute(self, code: types.CodeType) -> Any:
        result = eval(code, self.names)
        return asyncio.run(_await(result)) if code.co_flags & inspect.CO_COROUTINE else result


async def _await(coroutine: Any) -> Any:
    return await coroutine


def _show_warning(message: Any, category: Any, filename: str, lineno: int, *_: Any) -> None:
    print(f"{filename}:{lineno}: {category.__name__}: {message}")


def _print_error(error: BaseException, name: str) -> None:
    """Print the traceback from the cell's first line on, without the frames of this program."""
    if isinstance(error, SystemExit):
        print(f"SystemExit: {error.code} (a cell cannot end the REPL; set answer['ready'] = True to finish)")
        return
    try:
        shown = traceback.TracebackException.from_exception(error, limit=-30)
        own = [i for i, frame in enumerate(shown.stack) if frame.filename.startswith("<step ")]
        shown.stack[:] = shown.stack[own[0] :] if own else []
        print("".join(shown.format(chain=True)), end="")
    except Exception as broken:
        print(f"{type(error).__name__} (its traceback could not be shown: {type(broken).__name__})")
