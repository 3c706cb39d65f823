import pathlib

render()
sections = re.split(r"(?m)^## Q(\d+)\. ", pathlib.Path("report.md").read_text(encoding="utf-8"))


def verdict(body):
    """Check one section of the file itself, not what is remembered of it."""
    said = re.findall(r"(?m)^Answer: (.*)$", body)
    cited = re.findall(r"`([^`\n]+):(\d+)`", body.partition("\nEvidence:")[2].partition("\n> ")[0])
    quoted = [row[2:] for row in body.splitlines() if row.startswith("> ")]
    lines = [row for name, line in cited for row in context[name].lines(int(line), int(line))]
    if said == ["not found"] and not cited:
        return "not found"
    stands = said and lines and (said[0] in [name for name, _ in cited] or plain(said[0]) in plain("\n".join(lines)))
    return "holds" if stands and lines == quoted else "broken"


verdicts = {int(number): verdict(body) for number, body in zip(sections[1::2], sections[2::2], strict=True)}
broken = [number for number in verdicts if verdicts[number] == "broken"]
missing = [number for number in verdicts if verdicts[number] == "not found"]
failures["finish"] = failures.get("finish", 0) + 1
print("citations that do not hold:", broken or "none", "- not found:", missing or "none")
if len(verdicts) == len(questions) and (not broken or failures["finish"] > 2):
    told = [f"Q{n}: {found['answer'] or 'not found'}" for n, found in sorted(findings.items())]
    note = f"Citations of {broken} do not hold.\n" if broken else ""
    answer["content"] = f"{len(questions)} questions, {len(missing)} not found; see report.md.\n{note}" + "\n".join(
        told
    )
    answer["ready"] = True
else:
    print(f"NEXT: settle {broken[0] if broken else 1}")
