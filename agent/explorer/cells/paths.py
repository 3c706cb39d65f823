# What the path of a document says about it.
def path_parts(name):
    """`http/client.py` -> [http, client]; what hides a module's name, as in `_pydatetime.py`, is dropped."""
    parts = (name.rpartition(".")[0] or name).split("/")
    return [re.sub(r"^_(py)?(?=[a-z])", "", part) for part in parts if part != "__init__"]


def path_fit(name, names):
    """How many parts of a dotted name the end of the document's path spells out; a bit more when it is the whole path."""
    parts, best = path_parts(name), 0
    for full in names:
        dotted = full.split(".")
        same = [n for n in range(1, min(len(parts), len(dotted)) + 1) if parts[-n:] == dotted[:n]]
        best = max([best, *(n + (n == len(parts)) / 4 for n in same)])
    return best


def is_module(name):
    dotted = name.split(".")
    code = (doc for doc in texts if dotted[-1] in doc and doc.endswith((".py", ".pyi")))
    return any(path_parts(doc)[-len(dotted) :] == dotted for doc in code)


def is_test(name):
    return any(part in ("test", "tests", "testing") or part.startswith("test_") for part in name.split("/"))


print("NEXT:", "windows" if asking else "count")
