def aimed(aim):
    """The pattern of what is counted or looked for: a name as a whole word, a phrase as it stands."""
    edges = [r"\b" if re.match(r"\w", aim["about"][at]) else "" for at in (0, -1)]
    return edges[0] + re.escape(aim["about"]).replace(r"\ ", " ") + edges[1]


def tally(pattern, aim):
    """Count hits, lines and documents exactly; keep the first hit, the last one, and the documents with the most lines."""
    total, lines, files, first, last = 0, 0, {}, None, None
    for match in context.iter_search(pattern, aim["folded"], aim["scope"]):  # one by one: a gigabyte may hold millions
        spot = (match.doc.name, match.line)
        total, lines = total + 1, lines + (spot != last)
        if spot != last:
            files[spot[0]] = files.get(spot[0], 0) + 1
        first, last = first or spot, spot
    return {"hits": total, "lines": lines, "files": files, "first": first, "last": last}


def counted(number):
    """Answer a count, the first or last occurrence, or which documents hold a text, with the lines that show it."""
    aim, question = aims[number], questions[number - 1]
    seen = tally(aimed(aim), aim)
    if not seen["hits"]:
        return None
    what = f'"{aim["about"]}"' + (" in any case" if aim["folded"] else "")
    place = "all documents" if aim["scope"] is None else f"{len(aim['scope'])} documents asked about"
    numbers = (
        f"{seen['hits']} occurrences of {what} on {seen['lines']} lines in {len(seen['files'])} documents (of {place})"
    )
    spots = list(dict.fromkeys([seen["first"], seen["last"]]))
    if aim["intent"] == "count":
        unit = re.search(r"\bhow (?:many|often)\s+(?:\w+\s+)?(\w+)?", question, re.I)
        unit = re.search(r"line|file|document|page", unit[0], re.I) if unit else None
        unit = unit[0].lower() if unit else "hit"
        number_of = {"line": seen["lines"], "hit": seen["hits"]}.get(unit, len(seen["files"]))
        called = {"hit": "occurrences", "line": "lines"}.get(unit, "documents")
        return {
            "answer": f"{number_of} {called}",
            "spots": spots,
            "how": f"counted by search: {numbers}; the first and the last",
        }
    if aim["intent"] == "edge":
        end = "last" if re.search(r"\blast\b", question, re.I) else "first"
        spot = seen[end]
        return {
            "answer": f"{spot[0]}, line {spot[1]}",
            "spots": [spot],
            "how": f"the {end} one in the documents' order; {numbers}",
        }
    best = sorted(seen["files"], key=lambda doc: (is_test(doc), -seen["files"][doc], doc.count("/"), doc))
    spots = [(doc, context.search(aimed(aim), aim["folded"], 1, [doc])[0].line) for doc in best[:5]]
    more = f" and {len(best) - 5} more" if len(best) > 5 else ""
    return {"answer": ", ".join(best[:5]) + more, "spots": spots, "how": f"found by search: {numbers}"}


print("NEXT: stated")
