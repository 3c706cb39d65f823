"""The `offline/explorer` model: a fixed research policy that replies with cells, as a model would."""
