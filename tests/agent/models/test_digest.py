"""The digest keeps what the next one needs, in order, within its bound, and is always shorter than its record."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.models.base import Message, ModelRequest, ModelSpec, complete
from agent.models.digest import Digest, digest
from agent.tokens import count_tokens

RECORD = """step 4:
I read the store lists and compare them with the log.
```repl
import csv
rows = list(csv.DictReader(open("stores.csv")))
for row in rows:
    print(row)
print(COMMIT("stores compared", "wrote stores-report.md"))
```
observation:
{'name': 'north', 'crates': '12'}
committed 3f2a9c1 stores compared

step 5:
Now the radio schedule, which failed before.
```repl
parse("radio.txt")
```
observation:
Traceback (most recent call last):
  File "<cell>", line 1, in <module>
ValueError: line 7 has no time

step 6:
TODO: ask which time zone radio.txt uses.
Decision: all times are kept in UTC.
"""


def test_it_keeps_what_the_next_one_needs() -> None:
    text = digest(RECORD, 160)
    for wanted in (
        "step 4:",
        "I read the store lists",
        "stores-report.md",
        "ValueError: line 7 has no time",
        "TODO: ask which time zone",
        "Decision: all times are kept in UTC.",
    ):
        assert wanted in text, text
    assert "import csv" not in text
    assert text.index("step 4:") < text.index("ValueError") < text.index("TODO")


def test_decisions_outlive_the_rest_when_room_is_short() -> None:
    text = digest(RECORD + "\n" + "\n".join(f"value {n} = {n * 7}" for n in range(200)), 90)
    assert "TODO: ask" in text
    assert "Decision:" in text
    assert "value 150" not in text


def test_the_request_s_bounds_hold() -> None:
    long = "\n".join(f"step {n}:\nI look at file{n}.md and find fact {n}." for n in range(1, 200))
    asked = ModelRequest((Message("system", "Sum up. At most 60 tokens."), Message("user", long)), max_tokens=500)
    reply = complete(Digest(ModelSpec("offline/digest")), asked)
    assert 20 < count_tokens(reply.text) <= 60
    assert reply.cost_usd == 0.0
    assert reply.tokens_out == count_tokens(reply.text)
    assert complete(Digest(ModelSpec("offline/digest")), asked) == reply


@given(st.text(min_size=12), st.integers(8, 400))
def test_it_is_bounded_and_shorter_than_its_record(record: str, tokens: int) -> None:
    text = digest(record, tokens)
    size = count_tokens(record)
    assert count_tokens(text) <= tokens
    if size >= 24 and record.strip():
        assert count_tokens(text) < size


@given(st.lists(st.sampled_from(RECORD.splitlines()), min_size=1), st.integers(20, 200))
def test_every_line_stands_in_the_record(lines: list[str], tokens: int) -> None:
    record = "\n".join(lines)
    known = {" ".join(line.split()) for line in lines}
    text = digest(record, tokens)
    assert all(line in known or "…" in line or line in " ".join(record.split()) for line in text.splitlines())
