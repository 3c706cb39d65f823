# What one question wants, beyond the kinds of answer: a count, the place of a text, an occurrence, what a thing is for.
INTENTS = (
    (
        "count",
        r"\bhow (many|often)\b.*\b(lines?|files?|documents?|times|occurrences?|pages|mention\w*|contain\w*|occurs?)\b",
    ),
    (
        "edge",
        r"\b(first|last)\b.*\b(mention|occur|appear|contain|line)|\b(mention|occur|appear|contain)\w*\b.*\b(first|last)\b",
    ),
    ("holds", r"\b(which|what|where)\b.*\b(contains?|holds?|says?|prints?|message|text|mentions?|has the)\b"),
    ("does", r"\bwhat (does|do)\b.*\b(do|mean)\b|\bwhat (is|are)\b.* (for|do)\b|\bpurpose of\b"),
)
FOLDED = r"\b(ignoring|whatever|regardless of|in any) (the )?case\b|case[- ]insensitiv\w+"


def places(question):
    """Split off what names documents: file names, folders and endings; return (the rest, wanted endings of names)."""
    found, sought = [], r"\b(?:mention|contain|includ|import|says?|text|message)\w*\s+(?:the\s+)?[`\"]?"
    for hit in re.finditer(
        r"`([^`\s]+)`|\"([^\"\s]+)\"|(?<![\w`\"])((?:[\w.-]+/)+[\w.-]*|\*?\.\w{1,4}(?= files?\b))", question
    ):
        word = next(filter(None, hit.groups())).removeprefix("./")
        ending = word.removeprefix("*") if re.fullmatch(r"\*?\.\w{1,5}", word) else ""
        here = [doc for doc in texts if ending and doc.endswith(ending)]
        if not ending and re.search(r"[./]", word) and not re.search(sought + re.escape(word), question):
            here = [d for d in texts if f"/{d}".endswith(f"/{word}") or (word[-1] == "/" and f"/{word}" in f"/{d}")]
        if here:
            found.append((word, set(here)))
    return found


def intend(number):
    """Say what a question is after: its intent, the text or name it is about, and the documents it speaks of."""
    question, parts = questions[number - 1], asked[number]
    found = places(question)
    scope = [doc for doc in texts if all(doc in here for _, here in found)] if found else None
    inside = {word for word, _ in found}
    more = re.findall(
        r"\b[A-Z][A-Z0-9]{3,}\b|\b[A-Z]{2,}[a-z]\w*\b|\b\w+(?=\(\))", re.sub(r"`[^`]+`|\"[^\"]+\"", " ", question)
    )
    more += re.findall(r"`(?:struct|union|enum|class|def|function|sub) +(\w+)`", question)
    parts["names"] = [name for name in dict.fromkeys(parts["names"] + more) if name not in inside]
    quoted = [a or b for a, b in re.findall(r"`([^`]+)`|\"([^\"]+)\"", question)]
    quoted = [text for text in quoted if text not in inside]
    intent = next((name for name, pattern in INTENTS if re.search(pattern, question, re.I)), "")
    if intent == "holds" and not quoted:
        intent = ""
    about = quoted[0] if quoted else parts["names"][0] if parts["names"] else ""
    if not about and intent == "does":
        hit = re.search(
            r"\b(?:does|do|is|are|of)\s+(?:(?:the|a|an|command|function|program|tool|module|class|method)\s+)*([\w.-]*\w)",
            question,
            re.I,
        )
        about = hit[1] if hit else ""
    elif not about and intent:
        hits = re.findall(
            r"\b(?:words?|mention\w*|contain\w*|of|does|says?)\s+(?:(?:the|a|an|word)\s+)*([\w.-]*\w)", question, re.I
        )
        about = hits[0] if hits else ""
    return {"intent": intent, "about": about, "scope": scope, "folded": bool(re.search(FOLDED, question, re.I))}


aims = {number: intend(number) for number in asked}
for number, aim in aims.items():
    limited = "everything" if aim["scope"] is None else f"{len(aim['scope'])} documents"
    print(number, aim["intent"] or asked[number]["kind"], "about", repr(aim["about"]), "in", limited)
print("NEXT: paths")
