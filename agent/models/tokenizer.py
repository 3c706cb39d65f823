"""A model's own tokens, counted by litellm with the encodings that it carries.

Nothing is fetched: a tokenizer that would have to come from the network is stood in for by litellm's own choice, cl100k.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=2048)  # the rules, the task and the kept steps come again in each prompt
def count_tokens(model: str, text: str) -> int | None:
    """Return how many tokens a text has for a model; None when litellm cannot say. litellm must be loaded."""
    litellm: Any = sys.modules["litellm"]
    litellm.disable_hf_tokenizer_download = True
    try:
        return int(litellm.token_counter(model=model, text=text))
    except Exception:
        return None  # a model that litellm has no tokenizer for: the estimate from above holds alone
