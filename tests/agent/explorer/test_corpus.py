"""The corpus on which the explorer is measured: real text, each content once, the same every time."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

from .cellrun import write_all

SCRIPT = Path(__file__).resolve().parents[3] / "scripts/corpus"
ROW = "a line of text that is long enough to be kept\n"


def corpus(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *map(str, arguments)], capture_output=True, text=True)


def test_text_alone_unpacked_and_never_twice(tmp_path: Path) -> None:
    source = write_all(tmp_path / "source", {"b.txt": ROW, "c/same.txt": ROW, "a.md": ROW * 2, "tiny": "x"})
    (source / "tool.1.gz").write_bytes(gzip.compress(f".TH TOOL\n{ROW * 3}".encode()))
    (source / "image").write_bytes(b"\x89PNG\0" + bytes(100))
    (source / "link.md").symlink_to(source / "a.md")
    done = corpus(tmp_path / "made", source, "--bytes", "1MB")
    assert done.returncode == 0, done.stderr
    made = sorted(path.relative_to(tmp_path / "made").as_posix() for path in (tmp_path / "made").rglob("*.*"))
    assert made == ["source/a.md", "source/b.txt", "source/tool.1"]
    assert json.loads(done.stdout)["files"] == 3
    assert "less text" in done.stderr
    (tmp_path / "made/source/a.md").write_text("changed")
    assert (source / "a.md").read_text() == ROW * 2  # a copy, not a link


def test_it_stops_at_the_size_and_refuses_a_folder_with_files(tmp_path: Path) -> None:
    source = write_all(tmp_path / "source", {f"{n:02}.txt": f"{n} {ROW}" for n in range(20)})
    done = corpus(tmp_path / "made", source, "--bytes", "200")
    assert 200 <= json.loads(done.stdout)["bytes"] < 300
    assert corpus(tmp_path / "made", source).returncode == 2
