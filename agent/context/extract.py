"""The text of files that are not UTF-8 text, as a program of its own: one job a line on stdin, one answer a line on stdout.

It runs apart from the host, under limits on memory, time and output, since a document from anywhere may be broken or made to
hurt. Its libraries are the extra `documents`. Pages of a PDF are ended by a form feed; DOCX and HTML become Markdown.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator
from importlib import import_module

MEMORY, SECONDS, OUTPUT = 2 << 30, 60, 1 << 30
#: What must be installed for each kind; an encoding needs nothing.
NEEDS = {"pdf": ("pypdfium2",), "docx": ("mammoth", "html_to_markdown"), "html": ("html_to_markdown",)}


def _pdf(source: str) -> Iterator[str]:
    document = import_module("pypdfium2").PdfDocument(source)
    for page in document:
        yield page.get_textpage().get_text_range().replace("\r\n", "\n") + "\n\f\n"


def _docx(source: str) -> Iterator[str]:
    mammoth = import_module("mammoth")
    with open(source, "rb") as file:
        yield _markdown(mammoth.convert_to_html(file, convert_image=mammoth.images.img_element(lambda _: {})).value)


def _html(source: str) -> Iterator[str]:
    with open(source, "rb") as file:
        yield _markdown(file.read().decode("utf-8", "replace"))


def _markdown(html: str) -> str:
    library = import_module("html_to_markdown")
    options = library.ConversionOptions(extract_metadata=False, skip_images=True)
    text: str = library.convert(html, options).content
    return text.strip() + "\n"


def _decoded(source: str, encoding: str) -> Iterator[str]:
    with open(source, encoding=encoding, errors="replace", newline="") as file:
        while block := file.read(1 << 20):
            yield block


def extract(kind: str, source: str, target: str) -> None:
    """Write the text of `source` to `target` as UTF-8; raise whatever its library does."""
    ways = {"pdf": _pdf, "docx": _docx, "html": _html}
    pieces = ways[kind](source) if kind in ways else _decoded(source, kind)
    with open(target, "w", encoding="utf-8", errors="replace", newline="") as out:
        for piece in pieces:
            out.write(piece)


def main() -> None:
    """Do the jobs that come, each [kind, source, target]; the answer is what went wrong, or nothing."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (OUTPUT, OUTPUT))
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        most = int(time.process_time()) + SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
        try:
            extract(*json.loads(line))
            problem = ""
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        print(json.dumps(problem[:300]), file=answers, flush=True)


if __name__ == "__main__":
    main()
