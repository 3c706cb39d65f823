ENOUGH = 0.62  # the share of a question's weight that must stand in and around a sentence that answers it


def read(number, items):
    """Let the sub-model answer from each passage on its own; what does not stand in the passage is dropped."""
    prompts = [
        f"Passage: {item['around'][:900]}\n\nQuestion: {questions[number - 1]}\nAnswer in a few words:"
        for item in items
    ]
    replies = llm_query_batched(prompts, max_tokens=32) if prompts else []
    return [str(reply) if reply and chr(96) * 3 not in str(reply) else "" for reply in replies]


def vote(number, passage, values):
    """Let the sub-model choose one of the values that stand in a passage."""
    if len(values) < 2:
        return values[0] if values else ""
    schema = {
        "type": "object",
        "properties": {"answer": {"type": "string", "enum": values}},
        "required": ["answer"],
    }
    prompt = f"Passage: {passage[:900]}\n\nQuestion: {questions[number - 1]}\nWhich of these is the answer: "
    prompt += "; ".join(values) + "?"
    reply = llm_query(prompt, schema=schema, max_tokens=40)
    return reply.get("answer", "") if isinstance(reply, dict) else ""


def shaped(number, item):
    """Values of the asked sort in a passage, and the last line they need: its field, its own words, or what follows."""
    if given := field(number, item["text"]):
        return [(given, 2.0)], item["last"]
    if asked[number]["kind"] not in SHAPES:
        return [], item["last"]
    values = options(number, item["text"])
    if not values and item["after"] and item["score"] > 0.85:
        return [(value, near / 2) for value, near in options(number, item["after"][2])], item["after"][1]
    return values, item["last"]


def from_prose(number):
    """Weigh shapes in the best sentences, the readings and the votes; return a candidate or None, and the readings."""
    kind = asked[number]["kind"]
    enough = 0.9 if kind in ("default", "base", "raise", "value") else ENOUGH  # code would have said it
    items = telling(number, [item for item in passages(number) if item["score"] >= enough])
    readings = read(number, items[:4])
    trust = 0.3 if asked[number]["firm"] else 0.5  # a small model mixes up years and numbers
    pool = []
    for item, reading in zip(items, readings, strict=False):
        values, last = shaped(number, item)
        chosen = vote(number, item["around"], list(dict.fromkeys(value for value, _ in values)))
        for value, near in values:
            liked = trust * (value in reading) + trust * (value == chosen)
            lines = range(item["first"], last + 1)
            score = item["score"] ** 2 * (0.5 + near + liked)
            pool.append(candidate(value, item["doc"], lines, score, "shape and vote"))
    pool.sort(key=lambda c: (-c["score"], c["answer"], c["doc"], c["lines"]))
    if pool or not items or kind in ("who", "when", "number"):
        return (pool[0] if pool else None), readings  # no value of the asked sort: not found
    best, runs = items[0], fresh_runs(number, items[0]["text"])[:4]
    chosen = vote(number, best["around"], [run for _, run in runs])
    liked = sorted(runs, key=lambda item: -item[0] - (item[1] in readings[0]) - (item[1] == chosen))
    short = liked[0][1] if not asking and runs and len(liked[0][1]) <= 120 else best["text"]
    lines = range(best["first"], best["last"] + 1)
    answer = best["doc"] if kind == "where" else short
    return candidate(answer, best["doc"], lines, best["score"], "sentence"), readings


print("NEXT: report")
