# Gigabytes are never read: rare words are searched for, and only the places where several of them meet are looked at.

GENERIC = {"base", "class", "constant", "default", "defin", "document", "error", "exception", "file", "function"}
GENERIC |= {"inherit", "lin", "modul", "number", "parameter", "rais", "valu"}  # words of a question, not of its matter
FEW, PASSES, NEAR = 3000, 8, 3  # hits that make a term common; passes over everything; lines around a hit


def spelled(term, parts):
    """A pattern for a term and its forms, with a fixed run of letters that a search can jump to."""
    forms = [word.lower() for word in parts["words"] if stem(word) == term] or [term]
    root = min([*forms, term], key=len)
    while not all(form.startswith(root) for form in forms):
        root = root[:-1]
    if len(root) < 4:
        return (
            r"\b(?:"
            + "|".join(f"[{form[0].upper()}{form[0]}]{re.escape(form[1:])}" for form in dict.fromkeys(forms))
            + r")\b"
        )
    return rf"\b[{root[0].upper()}{root[0]}]{re.escape(root[1:])}"


def name_bag(doc):
    return {stem(word) for word in WORD.findall(doc.replace("_", " "))}


def about(doc, parts):
    """True for a document that is named by a word of the question, as `grep.1` is by grep."""
    return stem(doc.rpartition("/")[2].partition(".")[0]) in set(parts["terms"]) - GENERIC


def hits(pattern, docs=None, limit=FEW):
    """Where a pattern stands: document -> lines, how many hits, and the share of everything that was searched for them."""
    found, seen, place = {}, 0, None
    for match in context.search(pattern, limit=limit, docs=docs):
        seen, place = seen + 1, match.doc.name
        found.setdefault(place, []).append(match.line)
    share = offsets[place] / passed if docs is None and seen >= limit else 1.0
    return found, seen / share, seen >= limit


def meet(lines_of, weights):
    """The best window of a document: its weight, first and last line, from term -> lines."""
    rows = sorted((line, term) for term, lines in lines_of.items() for line in lines[:400])
    best = (0.0, 1, 1)
    for at, (line, _) in enumerate(rows):
        inside = {term for other, term in rows[at : at + 60] if other <= line + 2 * NEAR}
        weight = sum(weights[term] for term in inside)
        if weight > best[0]:
            best = (weight, line, max(other for other, _ in rows[at : at + 60] if other <= line + 2 * NEAR))
    return best


offsets, passed = {}, 0  # bytes before a document's end, to say how far a search came
for doc in context:
    if doc.kind == "text":
        passed += doc.size
        offsets[doc.name] = passed
print("NEXT: holding")
