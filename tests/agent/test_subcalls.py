"""Typed answers: what is taken for JSON, and what a model is told when it is none."""

from __future__ import annotations

from typing import Any

import pytest

from agent.subcalls import parse_typed

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize("text", ['{"n": 1}', '  {"n": 1}\n', '```json\n{"n": 1}\n```', '\n```\n{"n":\n1}```  '])
def test_json_with_or_without_fences(text: str) -> None:
    assert parse_typed(text, NUMBER) == ({"n": 1}, "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no JSON"),
        ('{"n": 1', "no JSON"),
        ('{"n": "1"}', "not of type 'integer'"),
        ("{}", "'n' is a required property"),
        ("[1]", "not of type 'object'"),
    ],
)
def test_the_problem_is_named(text: str, problem: str) -> None:
    value, told = parse_typed(text, NUMBER)
    assert value is None and problem in told


@pytest.mark.parametrize("schema", [{"type": "nothing"}, {"$ref": "#"}])
def test_a_schema_that_is_wrong_is_no_error_of_the_host(schema: dict[str, Any]) -> None:
    assert "the schema itself is wrong" in parse_typed("{}", schema)[1]


def test_a_long_problem_is_cut() -> None:
    assert len(parse_typed('{"n": "%s"}' % ("x" * 10_000), NUMBER)[1]) < 400
