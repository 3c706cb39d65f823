"""The journal: what happened, exactly once. A leaf that knows neither agents nor git."""
