def defaults(fit, doc, node, inside, parts):
    """Default values of the asked parameters in a signature; for a class, in `__init__`, else its attributes."""
    wanted = parts["names"] + parts["words"]
    if isinstance(node, ast.ClassDef):
        inner = [n for n in node.body if getattr(n, "name", "") == "__init__"]
        for each in inner:
            yield from defaults(fit, doc, each, inside, parts)
        for each in node.body:
            assigns = isinstance(each, (ast.Assign, ast.AnnAssign)) and each.value is not None
            if assigns and any(name in wanted for name in named(each)):
                yield candidate(source(doc, each.value), doc, [each.lineno], fit - 0.5, "attribute")
    elif hasattr(node, "args"):
        args = node.args.posonlyargs + node.args.args
        first = len(args) - len(node.args.defaults)
        pairs = [*zip(args[first:], node.args.defaults, strict=True)]
        pairs += zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        for arg, value in pairs:
            if arg.arg in wanted and value is not None:
                score = fit + (arg.arg in parts["names"])
                lines = {node.lineno, value.lineno, value.end_lineno}
                yield candidate(source(doc, value), doc, lines, score, "signature")


def raised(fit, doc, node, parts):
    """Exceptions that a function raises, by how much of the question stands in condition and message."""
    rows = context[doc].lines(node.lineno, node.end_lineno)
    for each in ast.walk(node):
        if isinstance(each, ast.Raise) and each.exc is not None:
            first, last = max(0, each.lineno - 2 - node.lineno), each.end_lineno - node.lineno + 1
            have = {stem(word) for word in re.findall(r"[A-Z]?[a-z]+", " ".join(rows[first:last]))}
            cover = sum(idf[term] for term in parts["terms"] if term in have - {"rais", "exception", "error"})
            name = source(doc, getattr(each.exc, "func", each.exc))
            yield candidate(name, doc, [each.lineno], fit + cover / 4, "raise")


print("NEXT: extract")
