questions = []
asking = False  # one question, answered in words that cite lines; else a list of them, answered in report.md

# question number -> what was found, with its evidence: report.md is rendered from this; kept when this cell is run again
findings = globals().get("findings", {})
failures = globals().get("failures", {})  # what went wrong how often, so that nothing is tried for ever
if isinstance(
    context, (str, list, dict)
):  # text given inline: put in the scratch folder, it has lines and can be searched
    import pathlib
    import re

    from agent.context import open_refs

    parts = list(context.items()) if isinstance(context, dict) else [("context", context)]
    if isinstance(context, list):
        parts = [(f"context-{number}", part) for number, part in enumerate(context, 1)]
    refs = []
    for name, part in parts:
        path = pathlib.Path(re.sub(r"[^\w.-]", "-", str(name))[:80] + ".txt").absolute()
        path.write_text(str(part), encoding="utf-8")
        refs.append((str(path), 0, path.stat().st_size))
    context = open_refs(refs)
texts = [doc.name for doc in context if doc.kind == "text"]
print(context.peek(500))
print(len(questions), "questions;", len(texts), "text documents of", len(context))
print("NEXT: words")
