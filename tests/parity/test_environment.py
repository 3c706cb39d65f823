"""What Prime Intellect's RLMEnv promised beyond the reference library; `DEV:` marks where we do better on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import UsageError
from tests.parity.asking import RUNS_CONTEXT, cell, out, requests, scripted


def test_a_trailing_expression_is_shown_and_the_transcript_is_readable(tmp_path: Path) -> None:
    with scripted(
        tmp_path, "x = 20\nx + 2", "FINAL([len(history), history[0]['step'], history[0]['observation']])"
    ) as rlm:
        assert rlm.completion("c", question="q").response == "[1, 1, '22']"


def test_the_context_may_be_a_folder(tmp_path: Path) -> None:
    material = tmp_path / "material"
    (material / "deep").mkdir(parents=True)
    (material / "a.txt").write_text("one")
    (material / "deep" / "b.txt").write_text("two")
    with scripted(tmp_path, "FINAL([context.names(), [d.text for d in context]])") as rlm:
        assert rlm.completion(material, question="q").response == "[['a.txt', 'deep/b.txt'], ['one', 'two']]"


def test_links_that_lead_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    material = tmp_path / "material"
    material.mkdir()
    (tmp_path / "secret").write_text("secret")
    (material / "a.txt").write_text("a")
    (material / "out").symlink_to(tmp_path / "secret")
    code = f"import os\nFINAL([context.names(), os.path.exists({str(tmp_path / 'secret')!r})])"
    with scripted(tmp_path, code) as rlm:
        assert rlm.completion(material, question="q").response == "[['a.txt'], False]"
        assert [refusal.path for refusal in rlm.manifest.refused] == [str(material / "out")]


def test_a_file_of_any_size_is_looked_at_in_place_and_text_has_a_limit(tmp_path: Path) -> None:
    # DEV: the size limit of files is gone, since nothing is copied; only what is given as text or data is limited.
    with (tmp_path / "large.txt").open("wb") as file:
        file.truncate(1 << 32)
    with scripted(tmp_path, "FINAL([context[0].size, context[0].peek(1) == '\\0'])") as rlm:
        assert rlm.completion(tmp_path / "large.txt", question="q").response == "[4294967296, True]"
        with pytest.raises(UsageError, match="too large to be given inline"):
            rlm.completion("x" * (257 << 20), question="q")


def test_the_prompt_tells_the_budget_and_what_is_in_the_context(tmp_path: Path) -> None:
    told = {"match": r"(?s)context: 2 documents, 13 char.*left: 49 steps, .*\d+ tokens", **cell("FINAL('told')")}
    material = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path, text in zip(material, ("hello, a", "and b"), strict=True):
        path.write_text(text)
    with scripted(tmp_path, told, "FINAL('not told')", limits={"steps": 50, "tokens": 100_000}) as rlm:
        assert rlm.completion(material, question="q").response == "told"


def test_the_context_of_the_model_never_gets_full(tmp_path: Path) -> None:
    # DEV: there it warns once when it is nearly full, and ends when it is.
    long = cell("print('x y ' * 4000)", times=6)
    limits = {"prompt_tokens": 3000, "output_chars": 16000}
    with scripted(tmp_path, long, "FINAL(len(history))", limits=limits) as rlm:
        done = rlm.completion("x" * 100_000, question="q")
    assert done.response == "6" and done.outcome.kind == "done"


def test_a_cell_that_takes_too_long_is_interrupted_and_told(tmp_path: Path) -> None:
    look = "FINAL([x, 'limits.cell_timeout' in history[0]['observation']])"
    with scripted(tmp_path, "x = 5\nwhile True: pass", look, limits={"cell_timeout": 0.3}) as rlm:
        assert rlm.completion("c", question="q").response == "[5, True]"


@pytest.mark.parametrize("last", ["1 / 0", "import os; os._exit(3)"])
def test_at_any_stop_the_current_answer_is_still_read(tmp_path: Path, last: str) -> None:
    with scripted(tmp_path, "answer['content'] = 'so far'", cell(last, forever=True), max_iterations=3) as rlm:
        done = rlm.completion("c", question="q")
    assert (done.response, done.steps) == ("so far", 3)


def test_a_batch_refuses_what_is_no_string_slot_by_slot_in_children_too(tmp_path: Path) -> None:
    child = "b = llm_query_batched([1, 'say']); out = [str(b[0]), b[1]]"
    with scripted(tmp_path, {"match": "^say", "reply": "said"}, RUNS_CONTEXT) as rlm:
        got = out(rlm, f"out = rlm_query('go', context={child!r})")
    assert got == "['Error: prompt 0 is a int, not a str', 'said']"


def test_a_child_gets_a_slice_by_reference(tmp_path: Path) -> None:
    # DEV
    (tmp_path / "a.txt").write_text("".join(f"line {n}\n" for n in range(1000)))
    child = {
        "match": "^<task>\nwhat is it",
        **cell("FINAL([type(context).__name__, context.text if hasattr(context, 'text') else context[0].text])"),
    }
    with scripted(tmp_path, child, "FINAL(rlm_query('what is it', context=context[0].search('line 77$')[0]))") as rlm:
        assert "line 77" in rlm.completion(tmp_path / "a.txt", question="q").response


def test_a_file_that_grew_between_completions_can_be_handed_on(tmp_path: Path) -> None:
    # DEV
    file = tmp_path / "a.txt"
    child = {"match": "^<task>\nhow long", **cell("FINAL(sum(len(part.text) for part in context))")}
    with scripted(tmp_path, child, cell("FINAL(rlm_query('how long', context=context[0]))", forever=True)) as rlm:
        for size in (10, 5000):
            file.write_text("x" * size)
            assert rlm.completion(file, question=f"q {size}").response == str(size)


def test_every_request_counts_once(tmp_path: Path) -> None:
    with scripted(tmp_path, {"match": "^say", "reply": "said"}, RUNS_CONTEXT) as rlm:
        out(rlm, "out = llm_query_batched(['say a'] * 3 + ['say b'])")
    assert len(requests(tmp_path)) == 5
