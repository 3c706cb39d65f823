import math


def homes(name, docs):
    """The documents that a dotted name's module or package can mean: its file, or any below its folder."""
    head = name.split(".")[0]
    near = [doc for doc in docs if "." in name and head in doc]
    return [doc for doc in near if path_fit(doc, [name]) or f"/{head}/" in f"/{doc}"]


def holding(number, name):
    """Where the last part of a name stands: in the module that the name spells, when it is there, else anywhere."""
    last, scope = name.rpartition(".")[2], aims[number]["scope"]
    home = homes(name, texts) if scope is None else []
    for docs in (home, scope) if home else (scope,):
        found, _, _ = hits(rf"\b{re.escape(last)}\b", docs, 20 * FEW)
        idf[last] = math.log(1 + len(texts) / (len(found) + 0.5))
        if found:
            break
    owner = name.rpartition(".")[0].rpartition(".")[2]
    if owner and len(found) > 1:  # the class that a name belongs to stands in the same document
        owners = hits(rf"\b(?:class|struct|interface)[ \t]+{re.escape(owner)}\b", list(found))[0]
        found = {doc: found[doc] for doc in found if doc in owners} or found
    holders[last] = list(found)
    return last, found


print("NEXT: narrow")
