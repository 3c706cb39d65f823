def field(number, text):
    """The value of a `key: value` line or a two-column table row whose key the question names."""
    hit = re.match(r"([^:|]{2,50})[:|]\s+([^|]+?)\s*\|?\s*$", text)
    keys = [stem(word) for word in WORD.findall(hit[1]) if word.lower() not in STOP] if hit else []
    shape = SHAPES.get(asked[number]["kind"], ".")
    if keys and all(key in asked[number]["terms"] for key in keys) and re.search(shape, hit[2]):
        return hit[2].rstrip(".")
    return None


def fresh_runs(number, text):
    """Weigh the runs of words that the question does not contain; those between its own words count more."""
    known = {stem(word) for word in WORD.findall(questions[number - 1])} - STOP
    runs, words = [], list(WORD.finditer(text))
    fresh = [stem(hit.group()) not in known or (len(hit.group()) > 2 and hit.group().isupper()) for hit in words]
    at = 0
    while at < len(words):
        end = at
        while (
            end < len(words)
            and fresh[end]
            and (end == at or not re.search(r"[,;:()]", text[words[end - 1].end() : words[end].start()]))
        ):
            end += 1
        first, last = at, end - 1
        while first <= last and words[last].group().lower() in EDGE:
            last -= 1
        if first <= last:
            new = sum(words[i].group().lower() not in STOP for i in range(first, last + 1))
            sides = [words[i].group() for i in (at - 1, end) if 0 <= i < len(words) and not fresh[i]]
            beside = len(sides) + 2 * (asked[number]["noun"] in map(stem, sides))
            if new:
                if at > 0 and stem(words[at - 1].group()) == asked[number]["noun"]:
                    first = at - 1  # "Camera 3" rather than "3"
                run = text[words[first].start() : words[last].end()]
                runs.append((min(new, 3) + beside, run[max(0, run.find("because")) :]))
        at = max(end, at + 1)
    return sorted(runs, key=lambda item: -item[0])


print("NEXT: ask")
