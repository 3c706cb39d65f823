"""Every test lives in a home of its own, without keys, git identity or a state folder of the user's."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def isolated(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test an empty home and take away whatever the environment says about keys, git and runs."""
    import os

    home = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_API_BASE")) or name.startswith(("GIT_", "RLM_AGENT_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("RLM_AGENT_HOME", str(home / "state"))
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    return home
