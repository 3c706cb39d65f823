def weigh(own, near, heading, parts):
    """Say how much of a question stands in a sentence, and next to it or in its heading (which counts less)."""
    weights = {term: idf[term] * (3 if term in parts["focus"] else 1) for term in parts["terms"]}
    score = 0
    for term, weight in weights.items():
        score += weight * (1 if term in own else 0.6 if term in heading else 0.4 if term in near else 0)
    missing = sum(stem(word) not in own | near | heading for word in parts["firm"])
    return score / (sum(weights.values()) or 1) - 0.5 * missing


def passages(number, keep=6):
    """Rank sentences by the weight of the question's terms in them, in their neighbours and in their heading."""
    parts, home = asked[number], region(number)
    dotted = [name.split(".") for name in parts["names"]]
    modules = [(name, 1, None) for name in ranked[number] if path_parts(name) in dotted]
    places = [home] if home else regions.get(number) or modules or [(name, 1, None) for name in ranked[number]]
    scored = []
    for place, (name, top, end) in enumerate(places):
        cut = sentences(context[name], top, end)
        bags = [{stem(word) for word in WORD.findall(item[2])} for item in cut]
        bonus = 0.3 * bool(home or path_fit(name, parts["names"])) - 0.01 * place - 0.3 * is_test(name)
        bonus += 0.25 * bool(regions and about(name, parts))
        for at, (first, last, text, heading) in enumerate(cut):
            if len(text) >= 600 or not bags[at] & set(parts["terms"]):
                continue
            beside = [i for i in (at - 1, at + 1) if 0 <= i < len(cut) and cut[i][3] == heading]
            near = {word for i in beside for word in bags[i]}
            head = {stem(word) for word in WORD.findall(heading.replace("_", " ").replace("/", " "))}
            around = " ".join(cut[i][2] for i in sorted([at, *beside]))
            after = cut[at + 1] if at + 1 in beside and cut[at + 1][0] - last < 2 else None
            score = weigh(bags[at], near, head, parts) + bonus
            where = {"score": score, "doc": name, "first": first, "last": last}
            scored.append({**where, "text": text, "around": around, "after": after})
    return sorted(scored, key=lambda p: (-p["score"], p["doc"], p["first"]))[:keep]


def telling(number, items):
    """In a gigabyte something always looks alike: the two rarest words have to stand in or around a sentence."""
    there = [term for term in asked[number]["terms"] if asking and holders.get(term)]
    rarest = sorted(there, key=lambda term: -idf[term])[:2]
    bags = [{stem(word) for word in WORD.findall(f"{i['doc']} {i['around']}".replace("_", " "))} for i in items]
    return [item for item, bag in zip(items, bags, strict=True) if bag.issuperset(rarest)]


print("NEXT: shapes")
