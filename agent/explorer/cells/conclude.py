def supported(number, found):
    """A second look: the answer stands in the cited lines, and what the question names stands there or close by."""
    if not found or not grounded(found):
        return False
    first, last = found["lines"][0], found["lines"][-1]
    near = " ".join([*context[found["doc"]].lines(max(1, first - 60), last + 10), found["doc"]]).lower()
    # Every part of a dotted name: a line about a command of the same name is none about the method.
    return all(is_module(n) or all(part in near for part in n.lower().split(".")) for n in asked[number]["names"])


def weighed(number):
    """Candidates in the order of trust: what is for what, code, lines that state it, prose."""
    if aims[number]["intent"] == "does" and aims[number]["about"]:
        yield purpose(number)
    code = [item for item in from_code(number) if item["score"] > -1]
    lines = (
        from_lines(number) if asked[number]["kind"] in ("value", "where", "number", "what", "default", "when") else []
    )
    yield sorted(code + lines, key=lambda c: -c["score"]) if code else lines
    best, _ = from_prose(number)
    yield [best] if best else []


def settled(number):
    """The first candidates that stand the second look: the answer, and others that say something else."""
    for items in weighed(number):
        good = [item for item in items if supported(number, item)]
        if good:
            return good[0], [item for item in good[1:] if item["answer"] != good[0]["answer"]]
    return None, []


def cited(doc, lines):
    """Lines as they stand, each with its citation."""
    rows = [(line, row) for line in lines for row in context[doc].lines(line, line)]
    return [f"[{doc}:{line}]\n> {row[:400]}" for line, row in rows if row.strip()]


def conclude(number):
    """Say the answer with the lines that it rests on, or that it is not there and what was looked at."""
    aim = aims[number]
    scope = len(texts if aim["scope"] is None else aim["scope"])
    if aim["intent"] in ("count", "edge", "holds") and aim["about"]:
        found = counted(number)
        if not found:
            zero = "0. " if aim["intent"] == "count" else ""
            return f'{zero}not found: "{aim["about"]}" stands in none of {scope} documents.'
        rows = [row for doc, line in found["spots"] for row in cited(doc, [line])]
        return "\n".join([f"{found['answer']}.", "", *rows, "", f"How: {found['how']}."])
    best, others = settled(number)
    if best is None:
        seen = [f"{item['doc']} line {item['first']}" for item in passages(number)[:3]]
        looked = ", ".join(dict.fromkeys(asked[number]["names"] + asked[number]["words"]))
        near = f" Nearest, and no answer: {'; '.join(seen)}." if seen else ""
        return f"not found: searched {scope} documents for {looked}.{near}"
    best = narrow(best)
    rows = cited(best["doc"], best["lines"])
    rest = [f"{item['answer']} ({item['doc']} line {item['lines'][0]})" for item in others[:3]]
    tail = ["Elsewhere it is: " + "; ".join(rest) + "."] if rest else []
    return "\n".join([f"{best['answer']}", "", *rows, "", f"How: {best['how']}.", *tail])


said = "\n\n".join(conclude(number) for number in asked)
print(said[:2000])
answer["content"] = said
answer["ready"] = True
