"""The hard bound of the prompt: it holds whatever a run brings, and what matters most is still there."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.models.base import Message
from agent.prompt import Material, assemble
from agent.prompts import prompt
from agent.tokens import count_tokens, cut
from state.records import FoldRecord, StepRecord


def a_step(seq: int, reply: str = "I look.\n```repl\nprint(1)\n```", observation: str = "1") -> StepRecord:
    return StepRecord("R", seq, "done", 1.0, reply=reply, observation=observation)


def a_fold(first: int, last: int, summary: str = "found things") -> FoldRecord:
    return FoldRecord(f"F{first}", "R", first, last, 0, summary, "m", 3, 100, 1.0)


def material(**fields: object) -> Material:
    return Material(
        **{"system": "Rules.", "goal": "Find the answer.", "step": 7, "steps": [a_step(5), a_step(6)], **fields}
    )  # type: ignore[arg-type]


def test_order_is_system_task_history_environment_steps_state() -> None:
    made = assemble(
        material(folds=[a_fold(1, 4)], environment="branch: main", roadmap="# Plan", events=["A file changed."]),
        8000,
    )
    roles = [m.role for m in made.messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    first, last = made.messages[1].content, made.messages[-1].content
    assert [first.index(p) for p in ("<task>", "<roadmap>", "<history>", "<environment>")] == sorted(
        first.index(p) for p in ("<task>", "<roadmap>", "<history>", "<environment>")
    )
    assert "[steps 1-4" in first
    assert last.startswith('<observation step="6">') and "step: 7\nA file changed." in last


def test_the_same_material_gives_the_same_hash_and_other_material_another() -> None:
    assert assemble(material(), 8000).hash == assemble(material(), 8000).hash
    assert assemble(material(), 8000).hash != assemble(material(goal="Other."), 8000).hash


def test_a_huge_observation_is_cut_with_the_way_to_the_rest() -> None:
    made = assemble(material(steps=[a_step(5), a_step(6, observation="start " + "noise " * 50_000 + " end")]), 8000)
    last = made.messages[-1].content
    assert made.tokens <= 8000
    assert "start" in last and " end" in last and "CONTEXT(step=6) shows all" in last


texts = st.one_of(
    st.text(max_size=2000),
    st.integers(0, 60_000).map(lambda n: "word " * n),
    st.integers(0, 20_000).map(lambda n: "日本" * n),
    st.integers(0, 20_000).map(lambda n: "{[(;:" * n),
)


@settings(max_examples=60, deadline=None)
@given(
    goal=texts,
    roadmap=texts,
    environment=texts,
    short=texts,
    tools=st.lists(texts, max_size=3),
    system=st.sampled_from([prompt("root"), "Rules. " * 5000]),
    steps=st.lists(st.tuples(texts, texts), min_size=0, max_size=15),
    folds=st.lists(texts, max_size=25),
    events=st.lists(texts, max_size=3),
    bound=st.sampled_from([1200, 2000, 4000, 8000, 32000]),
)
def test_the_bound_holds_for_anything(
    goal: str,
    roadmap: str,
    environment: str,
    short: str,
    tools: list[str],
    system: str,
    steps: list[tuple[str, str]],
    folds: list[str],
    events: list[str],
    bound: int,
) -> None:
    made = assemble(
        Material(
            system=system,
            goal=goal,
            step=99,
            steps=[a_step(n + 50, r, o) for n, (r, o) in enumerate(steps)],
            folds=[a_fold(n, n, s) for n, s in enumerate(folds)],
            roadmap=roadmap,
            material=short,
            tools=tools,
            environment=environment,
            events=events,
        ),
        bound,
    )
    assert made.tokens <= bound
    assert sum(count_tokens(m.content) for m in made.messages) + made.reserve <= bound
    assert "step: 99" in made.messages[-1].content


def test_cut_keeps_both_ends_and_the_bound() -> None:
    text = "HEAD " + "middle " * 3000 + " TAIL"
    short = cut(text, 100)
    assert count_tokens(short) <= 100 and short.startswith("HEAD") and short.endswith("TAIL")
    assert cut("short", 100) == "short"


def test_system_prompts_are_small() -> None:
    sizes = {"root": 1050, "ask": 600, "child": 400, "plain": 60, "last_words": 60, "fold": 100, "progress": 80}
    for role, most in sizes.items():
        assert 0 < count_tokens(prompt(role)) <= most, role


def test_a_usual_prompt_leaves_room_that_only_a_large_newest_observation_takes() -> None:
    folds = [a_fold(10 * n, 10 * n + 9, "what was found " * 60) for n in range(8)]
    rules, steps = prompt("root"), [a_step(n, observation="observation " * 166) for n in range(95, 100)]
    usual = assemble(material(system=rules, steps=steps, folds=folds), 8000).tokens
    assert 5500 < usual <= 7000
    large = [*steps[:-1], a_step(99, observation="observation " * 5000)]
    assert usual < assemble(material(system=rules, steps=large, folds=folds), 8000).tokens <= 8000


def test_a_short_context_and_the_tools_are_shown() -> None:
    made = assemble(material(material="The key is 42.", tools=["`weather(city)`: the weather there"]), 8000)
    first = made.messages[1].content
    assert "<context>\nThe key is 42.\n</context>" in first and "`weather(city)`" in first
    assert "<context>" not in assemble(material(), 8000).messages[1].content


def test_messages_are_plain_records() -> None:
    assert isinstance(assemble(material(), 8000).messages[0], Message)
