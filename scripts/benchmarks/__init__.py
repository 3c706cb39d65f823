"""What `scripts/bench` measures: one module a bench, each figure the median of repeated runs, the peer beside it."""
