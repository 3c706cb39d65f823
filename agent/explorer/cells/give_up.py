done = sorted(globals().get("findings", {})) or "none"
gave_up = "Gave up after repeated failures"
answer["content"] = f"{gave_up}." if globals().get("asking") else f"{gave_up}; questions {done} are in report.md."
raise RuntimeError(gave_up)  # no ready answer: the run ends as stuck, never as done
