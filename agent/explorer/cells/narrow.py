def narrow_down(number):
    """Rank the documents in which the question's names and rare terms meet; return them with the windows to read."""
    parts, scope = asked[number], aims[number]["scope"]
    bits, where, common = list(dict.fromkeys(name.rpartition(".")[2] for name in parts["names"])), {}, []
    for last, found in (holding(number, name) for name in parts["names"]):
        for doc, lines in found.items():
            where.setdefault(doc, {})[last] = lines
    fits = [doc for name in parts["names"] for doc in homes(name, texts)]
    inside = list(dict.fromkeys([*where, *fits]))[:3000] if where else scope
    firm = {stem(word) for word in parts["firm"]}
    patterns = {bit: rf"\b{re.escape(bit)}\b" for bit in bits}
    patterns |= {
        term: spelled(term, parts)
        for term in sorted(parts["terms"], key=lambda term: (term not in firm, -len(term)))
        if term not in bits
    }
    rare = 0
    for term in list(patterns)[len(bits) : len(bits) + PASSES]:
        found, total, full = hits(patterns[term], inside)
        spread = len(texts) if inside is None else len(inside)
        rare += not full and bool(found)
        if term in firm and not found and inside is scope:
            return [], []  # a proper name or number that stands nowhere: no passage can answer
        idf[term] = math.log(1 + spread / (max(len(found), total / 4 * full) + 0.5))
        holders.setdefault(term, list(found))
        common += [term] if full else []
        for doc, lines in found.items() if not full else ():
            where.setdefault(doc, {})[term] = lines
        if rare >= 3 and inside is scope and len(where) <= 3000:
            inside = list(where)  # enough to go by: the other words only decide among these
    for term in [*patterns, *(bit for name in parts["names"] for bit in name.split("."))]:
        idf.setdefault(term, 0.5)
    if not where and len(common) > 1:  # all are common: two of them in one line
        one, two = (patterns[term] for term in sorted(common, key=lambda term: -idf[term])[:2])
        for found, _, _ in (hits(f"{one}.*{two}", scope), hits(f"{two}.*{one}", scope)):
            for doc, lines in found.items():
                where.setdefault(doc, {}).setdefault(common[0], []).extend(lines)
    named = {term for term in parts["terms"] + bits if len(term) > 2}
    for doc in () if bits else texts if scope is None else scope:  # a document's name speaks for it too
        base = doc.rpartition("/")[2]
        if any(term in base.lower() for term in named) and named & name_bag(base):
            where.setdefault(doc, {})
    for doc in fits:
        where.setdefault(doc, {})
    weights = {term: idf[term] * (2 if term in bits else 1) for term in patterns}

    def value(doc):
        bag = name_bag(doc)
        best = meet(where[doc], weights)
        score = best[0] + 4.0 * path_fit(doc, parts["names"]) + 0.6 * sum(weights[term] for term in bag & set(weights))
        score += 2 * max(weights.values(), default=0) * about(doc, parts)
        return score * (0.3 if is_test(doc) else 1), best

    scores = {doc: value(doc) for doc in where}
    short = sorted(where, key=lambda doc: (-scores[doc][0], doc.count("/"), doc))[:60]
    for term in common:
        for doc, lines in hits(patterns[term], short, 200 * len(short))[0].items():
            where[doc].setdefault(term, lines)
    scores = {doc: value(doc) for doc in short}
    order_of = sorted(short, key=lambda doc: (-scores[doc][0], doc.count("/"), doc))[:12]
    windows = [(doc, max(1, first - 30), last + 30) for doc in order_of for _, first, last in [scores[doc][1]]]
    return order_of, windows


idf, holders, ranked, regions = {}, {}, {}, {}
for number in asked:
    if aims[number]["intent"] not in ("count", "edge", "holds") or not aims[number]["about"]:
        ranked[number], regions[number] = narrow_down(number)
        print(number, {term: round(weight, 1) for term, weight in idf.items()}, regions[number][:4])
    else:
        ranked[number], regions[number] = [], []
print("NEXT: code")
