BREAK = re.compile(r"^\s*(?:#{1,6}\s|[-*+]\s|\d+[.)]\s|\||[A-Z][\w /()-]{0,40}:\s|=+$|-+$)")
LEAD = re.compile(r"^[\s>#|]*(?:[-*+]\s+)?(?:[rRuU]?(?:\"\"\"|'''))?\s*")
SENTENCE = re.compile(
    r"\S.*?(?:(?<!\b[A-Z])(?<!\b(?:Dr|Mr|St|No|ca))(?<!\b(?:Mrs|e\.g|i\.e))[.!?](?=\s+[^a-z\s]|\s*$)|$)"
)


def sentences(doc, first=1, last=None):
    """Cut lines into sentences: (first line, last line, text, heading), without marks of lists and comments."""
    out, block, heading, comment = [], [], doc.name, False
    rows_alone = doc.name.endswith((".csv", ".tsv", ".log"))

    def flush():
        joined = " ".join(text for _, text in block)
        for hit in SENTENCE.finditer(joined):
            at, touched = 0, []
            for line, text in block:
                if at < hit.end() and at + len(text) > hit.start():
                    touched.append(line)
                at += len(text) + 1
            out.append((touched[0], touched[-1], hit.group().strip(), heading))
        block.clear()

    for number, row in enumerate(doc.lines(first, last), first):
        text = LEAD.sub("", row).rstrip("\\").strip().removesuffix('"""').strip()
        breaks = BREAK.match(row) and not row.startswith("# ")
        if not text or breaks or len(block) > 30 or rows_alone:
            flush()
        if doc.name.endswith(".py") and block and (row.lstrip()[:1] == "#") != comment:
            flush()  # a comment is no part of the code beside it
        if block and re.match(r"[A-Z][^.!?:]{0,40}: .*[^,;.-]$", block[-1][1]) and text[:1].isupper():
            flush()  # a `key: value` line ends with its line
        comment = row.lstrip()[:1] == "#"
        title = re.match(r"#{1,6}\s+\S|(?:class|def)\s+\w", row) and (not doc.name.endswith(".py") or row[0] != "#")
        if text and title:
            heading = f"{doc.name} {text}"
        if text:
            block.append((number, text))
        if title:
            flush()
    flush()
    return out


print("NEXT: prose")
