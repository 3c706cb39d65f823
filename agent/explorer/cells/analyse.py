KINDS = (  # what sort of answer is asked for; the first that fits
    ("default", r"\bdefaults?\b"),
    ("where", r"\b(which|what) (source )?(file|module|document|script)\b|\bwhere\b.*\bdefined\b"),
    ("base", r"\b(inherits?|derives?|derived|subclass(es)?|superclass(es)?|(base|parent) class(es)?)\b"),
    ("raise", r"\b(exception|error)\b.*\brais|\brais\w*\b.*\b(exception|error)\b"),
    ("who", r"^(\w+ )?(who|whose|whom)\b"),
    ("when", r"^(\w+ )?(when|(what|which) (date|year|day|time|month|hour))\b"),
    ("number", r"\bhow (many|much|long|often|far|high|deep|old|large|big|heavy)\b"),
    ("value", r"\bvalue\b|\bconstant\b"),
)


def analyse(question):
    """Split a question into identifiers, content words and the kind of answer it wants."""
    marked = re.findall(r"`([^`]+)`|\"([^\"]+)\"", question)
    names = [a or b for a, b in marked]
    rest = re.sub(r"`[^`]+`|\"[^\"]+\"", " ", question)
    names += re.findall(r"\b[A-Za-z_]\w*(?:\.\w+)+\b|\b\w+_\w+\b|\b[A-Z][a-z]+[A-Z]\w*\b", rest)
    names = [name.strip("()") for name in dict.fromkeys(names)]
    code = [name for name in names if re.fullmatch(r"[A-Za-z_][\w.]*", name)]
    spoken = WORD.findall(rest) + [w for name in names if name not in code for w in WORD.findall(name)]
    words = [word for word in spoken if word.lower() not in STOP]
    kind = next((kind for kind, pattern in KINDS if re.search(pattern, rest, re.I)), "what")
    # numbers and proper names have to stand near the answer
    firm = [w for w in words if w[0].isdigit() or (w[0].isupper() and not question.startswith(w))]
    clause = re.search(r"\b(?:when|if|while|unless)\b(.+)$", rest, re.I) if kind == "what" else None
    said = [stem(word) for word in WORD.findall(clause[1]) if word.lower() not in STOP] if clause else []
    noun = re.search(r"\b(?:how many|how much|which|what)\s+(?:`\w+`\s+)?(\w+)", question, re.I)
    noun = stem(noun[1]) if noun and noun[1].lower() not in STOP else ""
    terms = list(dict.fromkeys(map(stem, words)))
    # noun: which X, how many X; focus: what the condition of a "when …" says in the end
    sort = {"kind": kind, "noun": noun, "focus": said[-1:]}
    return {"names": code, "words": words, "terms": terms, "firm": firm, **sort}


asked = {number: analyse(question) for number, question in enumerate(questions, 1)}
for number, parts in asked.items():
    print(number, parts["kind"], parts["names"], parts["terms"])
print("NEXT:", "intent" if asking else "paths")
