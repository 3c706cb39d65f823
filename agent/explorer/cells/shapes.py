MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?"
NAME = r"(?:(?:[A-Z]\.|[A-Z][\w'’-]+)(?: (?:de|van|von|der))*\s+)*[A-Z][\w'’-]+"
EDGE = set(re.findall(r"\S+", "a an the of and or is are was were be been by to in on at it as that"))
SHAPES = {
    "when": rf"\d{{4}}-\d\d-\d\d|\d{{1,2}}\.? {MONTH}(?: \d{{4}})?|{MONTH} \d{{1,2}}\b(?:, \d{{4}})?"
    rf"|{MONTH} \d{{4}}|\b\d{{1,2}}:\d\d\b|\b(?:1[5-9]|20)\d\d\b"
    r"|\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)days?\b",
    "who": rf"{NAME}(?:(?:, (?:and )?| and ){NAME})*",
    "number": r"(?<![\w.-])[+-]?\d[\d,.]*(?<![.,])(?:\s?(?:%|°C|[a-zA-Z]+/?[a-z]*))?",
}


def options(number, text):
    """Values of the asked shape that the question does not contain, with how well they stand in the sentence."""
    parts, found = asked[number], []
    known = {stem(word) for word in WORD.findall(questions[number - 1])}
    firm = {stem(word) for word in parts["firm"]} & {stem(word) for word in WORD.findall(text)}
    spots = [hit for hit in WORD.finditer(text) if stem(hit.group()) in (firm or parts["terms"])]
    for hit in re.finditer(SHAPES[parts["kind"]], text):
        value, words = hit.group().strip(), WORD.findall(hit.group())
        fresh = [word for word in words if stem(word) not in known and word.lower() not in STOP]
        year = parts["kind"] == "number" and parts["firm"] and re.fullmatch(r"(19|20)\d\d", words[0])
        if not fresh or year:
            continue
        if (
            parts["kind"] == "who"
            and len(words) == 1
            and not re.fullmatch(rf"(?!(?:{MONTH}|None|True|False)$)[A-Z][a-z'’-]+", value)
        ):
            continue
        gaps = [text[min(hit.end(), spot.end()) : max(hit.start(), spot.start())] for spot in spots]
        far = min((len(gap) + 30 * bool(re.search(r"[,;]| and ", gap)) for gap in gaps), default=200)
        near = (1 + bool(firm)) / (1 + far / 40) + 0.5 * (bool(firm) and far < 30)
        if parts["kind"] == "number" and re.search("[A-Za-z]", value):
            unit = re.search(r"[A-Za-z%°]\S*$", value)[0]
            if unit.lower() in STOP:
                value, near = value[: -len(unit)].strip(), near + 0.2
            else:
                near += (
                    1
                    if stem(unit) == parts["noun"]
                    else -0.8
                    if stem(parts["noun"]) in map(stem, WORD.findall(text))
                    else 0
                )
        found.append((value, near))
    return found


print("NEXT: runs")
