def look(number):
    """Show what code and search find for a question, before anything is decided."""
    print(f"Q{number} ({asked[number]['kind']}): {questions[number - 1]}")
    for item in from_code(number)[:3]:
        where = f"{item['doc']}:{item['lines'][0]}"
        print(f"  code {item['score']:.1f} {item['how']}: {item['answer'][:80]} ({where})")
    for item in passages(number)[:3]:
        print(f"  text {item['score']:.2f} {item['doc']}:{item['first']}: {item['text'][:110]}")


def settle(number):
    """Decide a question: exact code evidence, else prose with the sub-model's readings, else not found."""
    exact = [item for item in from_code(number) if item["score"] > -1 and grounded(item)]
    if exact:
        best = exact[0]
        around = "\n".join(context[best["doc"]].lines(best["lines"][0] - 3, best["lines"][-1] + 12))
        readings = read(number, [{"around": around}])  # a second opinion, which does not overrule the code
    else:
        best, readings = from_prose(number)
    if not best or not grounded(best):
        best = {"answer": "", "doc": "", "lines": [], "how": "nothing that stands in the documents"}
    said = best["answer"] or "not found"
    agree = sum(said.lower() in reading.lower() for reading in readings)
    note = f"{best['how']}; {agree} of {len(readings)} readings agree"
    findings[number] = {**narrow(best), "note": note}
    render()
    COMMIT(f"Answer question {number}: {said[:60]}", f"{questions[number - 1]} {said}. From {note}.")
    print(f"Q{number}: {said} [{note}] {best['doc']}:{findings[number]['lines']}")


still_open = [number for number in asked if number not in findings]
print(f"NEXT: look {still_open[0]}" if still_open else "NEXT: finish")
