def constant(fit, doc, node, inside):
    """The value of an assignment, unless it is a local variable of a function."""
    targets = getattr(node, "targets", [node.target] if hasattr(node, "target") else [])
    local = inside and inside[-1].endswith("()") and not any(isinstance(t, ast.Attribute) for t in targets)
    value = source(doc, node.value)
    if len(value) <= 100 and not local:
        lines = range(node.lineno, node.end_lineno + 1)
        yield candidate(value, doc, lines, fit + isinstance(node.value, ast.Constant) / 2, "assignment")


def header(fit, doc, node):
    """The base classes in a class header."""
    bases = ", ".join(source(doc, base) for base in node.bases)
    yield candidate(bases, doc, range(node.lineno, node.bases[-1].end_lineno + 1), fit, "class header")


def things(number):
    """What a question names, modules apart, the most exact name first."""
    wanted = [name for name in asked[number]["names"] if not is_module(name)]
    if asking and not wanted and asked[number]["kind"] in ("default", "value", "where", "base", "raise"):
        wanted = asked[number]["names"]  # among so many documents some module bears almost any name
    return sorted(wanted, key=lambda name: (-name.count("."), name))


def from_code(number):
    """Answers that stand in the code itself, best first."""
    parts, kind, out = asked[number], asked[number]["kind"], []
    for name in things(number):
        for fit, doc, node, inside in defined(name, number)[:12]:
            if kind == "default" and hasattr(node, "body"):
                out += defaults(fit, doc, node, inside, parts)
            elif kind == "base" and getattr(node, "bases", None):
                out += header(fit, doc, node)
            elif kind == "where":
                out.append(candidate(doc, doc, [node.lineno], fit + hasattr(node, "body"), "definition"))
            elif kind == "raise" and hasattr(node, "args"):
                out += raised(fit, doc, node, parts)
            elif kind in ("value", "number", "what", "default") and getattr(node, "value", None):
                out += constant(fit, doc, node, inside)
    return sorted(out, key=lambda c: (-c["score"], c["doc"], c["lines"]))[:8]


def region(number):
    """Where the thing that a question names is defined: (document, first line, last line), or None."""
    for name in things(number):
        for fit, doc, node, _ in defined(name, number)[:1]:
            if hasattr(node, "body") and fit >= 0:
                return doc, node.lineno, node.end_lineno
    return None


print("NEXT:", "tally" if asking else "sentences")
