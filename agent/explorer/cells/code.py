import ast


def defined(name, number):
    """Find where a dotted or plain name is defined: (fit, document, node, names around it), best first."""
    last = name.rpartition(".")[2]
    outer = {bit for full in asked[number]["names"] for bit in full.split(".")} - {last}
    head = rf"\b(?:def|class)[ \t]+{last}\b|\b{last}[ \t]*(?::[^=\n]+)?=[^=]"
    code = [doc for doc in holders[last] if doc.endswith((".py", ".pyi"))]
    docs = {hit.doc.name: 1 for hit in context.search(head, docs=code, limit=2000)}
    order = sorted(
        docs,
        key=lambda d: (-path_fit(d, [name]), is_test(d), d.endswith(".pyi"), d not in ranked[number], d.count("/"), d),
    )
    found = []
    for doc in order[:6]:
        try:
            tree = ast.parse(context[doc].text)
        except (SyntaxError, ValueError):
            continue
        for node, inside in walk(tree, []):
            if last in named(node):
                place = path_parts(doc) + [part.strip("()") for part in inside]
                fit = sum(part in place for part in outer) - 0.5 * len(inside) - 2 * is_test(doc)
                fit -= 1.5 * doc.endswith(".pyi") + 0.02 * doc.count("/")
                found.append((fit + path_fit(doc, [name]), doc, node, inside))
    return sorted(found, key=lambda item: (-item[0], order.index(item[1]), item[2].lineno))


def walk(node, inside):
    """Yield every definition and assignment with the names of the classes and functions around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield child, inside
            yield from walk(child, [*inside, child.name + "()" * hasattr(child, "args")])
        else:
            if isinstance(child, (ast.Assign, ast.AnnAssign)):
                yield child, inside
            if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
                yield from walk(child, inside)


def named(node):
    """The names that a definition or an assignment binds."""
    if hasattr(node, "name"):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    targets = [each for target in targets for each in getattr(target, "elts", [target])]
    return [getattr(target, "id", getattr(target, "attr", "")) for target in targets]


def source(doc, node):
    return re.sub(r"\s+", " ", ast.get_source_segment(context[doc].text, node) or "")


def candidate(answer, doc, lines, score, how):
    return {"answer": answer.strip("`"), "doc": doc, "lines": sorted(set(lines)), "score": score, "how": how}


print("NEXT: signatures")
