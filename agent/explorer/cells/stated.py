# What other languages than Python state in a line: definitions, settings, rows with a key, and what a manual is about.
DEFINES = (
    r"^[ \t]*#[ \t]*define[ \t]+{n}\b(?!\().*",
    r"^[ \t]*(?:(?:typedef|static|extern|inline|export|public)[ \t]+)*"
    r"(?:struct|union|enum|class|interface|type|sub|function|func|fn|def)[ \t]+{n}\b.*",
    r"^[ \t]*#[ \t]*define[ \t]+{n}\(.*",
    r"^[ \t]*(?:(?:export|local|my|our|set|let|const|var|static|readonly)[ \t]+)*[$@%]?{n}[ \t]*[:=](?!=).*",
    r"^[ \t]*[\"']{n}[\"'][ \t]*(?::|=>).*",
    r"^[ \t]*{n}[ \t]*[|,;\t].*",
    r"^[ \t]*{n}[ \t]+\S.*",
)
CODE = r"\.(?:[ch]|cc|cpp|hpp|hh|java|js|ts|go|rs|rb|pl|pm|php|sh|m|sql|cmake)$"  # a definition rather than talk of one


def value_of(row, name):
    """What stands after the name in a line, comments and closing marks apart."""
    rest = row.partition(name)[2].lstrip("\"'`) ")
    rest = re.sub(r"\s*(?:/\*.*|//.*|\s#\s.*)$", "", re.sub(r"^\s*(?::=|=>|[:=|,;])?\s*", "", rest))
    return rest.rstrip(" ,;|").strip()


def from_lines(number):
    """Lines of any text that state what a name is, the most certain form first."""
    parts, out = asked[number], []
    for name in things(number):
        last = name.rpartition(".")[2]
        for place, form in enumerate(DEFINES):
            for match in context.search(
                form.replace("{n}", re.escape(last)), limit=200, docs=holders.get(last, [])[:2000]
            ):
                doc, row = match.doc.name, match.text.strip()
                if doc.endswith((".py", ".pyi")) and place:
                    continue  # that is read as code
                bag = {stem(word) for word in WORD.findall(doc.replace("_", " ").replace("/", " ") + " " + row)}
                cover = sum(idf[term] for term in parts["terms"] if term in bag)
                score = (
                    3 - place / 2 + cover / 4 + path_fit(doc, parts["names"]) - 2 * is_test(doc) - doc.count("/") / 20
                )
                score += bool(re.search(CODE, doc))
                answer = doc if parts["kind"] == "where" else value_of(row, last)
                if answer and answer != last and len(answer) < 200:
                    out.append(candidate(answer, doc, [match.line], score, "a line that states it"))
            if out:
                break
    return sorted(out, key=lambda c: (-c["score"], c["doc"], c["lines"]))[:8]


print("NEXT: purpose")
