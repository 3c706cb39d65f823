done = sorted(globals().get("findings", {})) or "none"
answer["content"] = f"Gave up after repeated failures; questions {done} are in report.md."
answer["ready"] = True
