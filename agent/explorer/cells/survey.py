questions = []

# question number -> what was found, with its evidence: report.md is rendered from this; kept when this cell is run again
findings = globals().get("findings", {})
failures = globals().get("failures", {})  # what went wrong how often, so that nothing is tried for ever
texts = [doc.name for doc in context if doc.kind == "text"]
print(context.peek(500))
print(len(questions), "questions;", len(texts), "text documents of", len(context))
print("NEXT: words")
