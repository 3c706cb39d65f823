"""From a model's reply to the cells it asks for: fenced blocks labelled repl, python or py.

Any case, CRLF, indentation of the whole block, a fence inside a string, and an unterminated last fence are handled. A
fence closes a block only where what is between parses as Python, or no later fence makes it parse.
"""

from __future__ import annotations

import ast
import re
import textwrap

_OPEN = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*(repl|python|py)[ \t]*$", re.IGNORECASE)
_FINAL = re.compile(r"^\s*FINAL(_VAR)?\((.*)\)\s*$", re.DOTALL | re.MULTILINE)


def parse_cells(reply: str) -> list[str]:
    """Return the code of every block, in order; empty when the reply has none."""
    lines = reply.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    cells: list[str] = []
    at = 0
    while at < len(lines):
        opened = _OPEN.match(lines[at])
        if opened is None:
            at += 1
            continue
        end = _closing(lines, at + 1, opened.group(2))
        code = textwrap.dedent("\n".join(lines[at + 1 : end])).strip("\n")
        if code.strip():
            cells.append(code)
        at = end + 1
    return cells


def parse_thought(reply: str) -> str:
    """Return what the reply says before its first block."""
    thought: list[str] = []
    for line in reply.splitlines():
        if _OPEN.match(line):
            break
        thought.append(line)
    return "\n".join(thought).strip()


def parse_final(reply: str) -> tuple[str, bool] | None:
    """Find `FINAL(…)` or `FINAL_VAR(…)` written as plain text: (content, is a variable's name), or None.

    Only outside of blocks: inside one it is a function call like any other.
    """
    found = _FINAL.search(_outside(reply))
    if found is None:
        return None
    content = found.group(2).strip()
    try:
        literal = ast.literal_eval(content)
        content = literal if isinstance(literal, str) else content
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        pass
    return content, found.group(1) is not None


def _closing(lines: list[str], start: int, fence: str) -> int:
    """Return the line that closes the block: the first after which the code parses, else the first, else the end."""
    closes = []
    for number in range(start, len(lines)):
        bare = lines[number].strip()
        if bare.startswith(fence) and not bare.strip(fence[0]):
            if _parses("\n".join(lines[start:number])):
                return number
            closes.append(number)
        elif closes and _OPEN.match(lines[number]):
            break  # the next block begins: this one ended before it, parsing or not
    return closes[0] if closes else len(lines)


def _outside(reply: str) -> str:
    lines = reply.replace("\r\n", "\n").split("\n")
    kept: list[str] = []
    at = 0
    while at < len(lines):
        fence = re.match(r"^\s*(`{3,}|~{3,})", lines[at])
        if fence is None:
            kept.append(lines[at])
            at += 1
        else:
            at = _closing(lines, at + 1, fence.group(1)) + 1
    return "\n".join(kept)


def _parses(code: str) -> bool:
    try:
        compile(textwrap.dedent(code), "<cell>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True
