def purpose(number):
    """What a thing is for: the first sentence of its docstring, or the NAME line of its manual page."""
    question, name, out = questions[number - 1], aims[number]["about"].strip("()"), []
    module = 3 * bool(re.search(r"\b(module|package)\b", question, re.I))
    if re.fullmatch(r"[A-Za-z_][\w.]*", name):
        for fit, doc, node, _ in defined(name, number)[:8] if name.rpartition(".")[2] in holders else ():
            said = ast.get_docstring(node, clean=False) if hasattr(node, "body") else None
            if said and said.strip():
                lead = re.split(r"(?<=[.!?])\s|\n\s*\n", said.strip(), maxsplit=1)[0]
                first = node.body[0].lineno + said[: said.find(lead)].count("\n")
                lines = range(first, first + lead.count("\n") + 1)
                out.append(candidate(plain(lead), doc, lines, fit, "docstring"))
    for doc in (doc for doc in texts if name.rpartition(".")[2] in doc):
        base = doc.rpartition("/")[2]
        if base == name or (base.rpartition(".")[0] == name and not base.endswith((".h", ".json", ".html"))):
            for match in context.search(
                rf"^(?:\.Nd )?.*\b{re.escape(name)}\b.* (?:\\?-|\\\(em|—)+ .*|^\.Nd .*", limit=1, docs=[doc]
            ):
                said = re.sub(r"^.*? (?:\\?-|\\\(em|—)+ |^\.Nd ", "", match.text)
                score = (
                    1
                    + 2 * bool(re.search(r"\b(command|program|tool)\b", question, re.I))
                    + ("/man" in f"/{doc}")
                    + (not doc.count("/") > 3) / 2
                )
                out.append(candidate(said, doc, [match.line], score, "the manual's NAME"))
        dotted = path_parts(doc)[-name.count(".") - 1 :]
        if dotted == name.split(".") and doc.endswith(".py"):
            rows = context[doc].lines(1, 60)
            for at, row in enumerate(rows, 1):
                hit = re.match(r"\s*[rRuU]?(?:\"\"\"|''')\s*(\S.*?)(?:\"\"\"|''')?$", row)
                if hit:
                    out.append(
                        candidate(
                            hit[1],
                            doc,
                            [at],
                            1.5 + module - doc.count("/") / 5 - is_test(doc),
                            "the module's docstring",
                        )
                    )
                    break
    return sorted(out, key=lambda c: (-c["score"], c["doc"].count("/"), c["doc"], c["lines"]))[:8]


print("NEXT: sentences")
