def plain(text):
    """Text as it reads: line ends, comment signs and repeated spaces gone."""
    return re.sub(r"\s+", " ", " ".join(re.sub(r"^[\s>#]+", "", row) for row in text.split("\n"))).strip()


def cited_rows(found):
    return [row for line in found["lines"] for row in context[found["doc"]].lines(line, line)]


def grounded(found):
    """True when the answer stands word for word in the cited lines, or is the name of the cited document."""
    quote = "\n".join(cited_rows(found))
    return found["answer"] == found["doc"] or (found["answer"] and plain(found["answer"]) in plain(quote))


def narrow(found):
    """Cite the line that holds the answer when a sentence runs over many."""
    for line in found["lines"] if len(found["lines"]) > 3 else []:
        if plain(found["answer"]) in plain(context[found["doc"]].lines(line, line)[0]):
            return {**found, "lines": [line]}
    return found


def render():
    """Write report.md anew from the findings."""
    rows = ["# Report", ""]
    for number, question in enumerate(questions, 1):
        found = findings.get(number)
        rows += [f"## Q{number}. {question}", ""]
        if found is None or not found["answer"]:
            rows += ["Answer: not found" if found else "Answer: (open)", ""]
            continue
        cited = ", ".join(f"`{found['doc']}:{line}`" for line in found["lines"])
        rows += [f"Answer: {found['answer']}", "", f"Evidence: {cited}", ""]
        rows += ["> " + row for row in cited_rows(found)] + [""]
    with open("report.md", "w", encoding="utf-8") as file:
        file.write("\n".join(rows))


print("NEXT:", "conclude" if asking else "decide")
