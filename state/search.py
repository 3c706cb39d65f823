"""Full-text search over a run's own past: steps, folds, commits, and what people said.

The index is SQLite's FTS5 without the texts, which stay where they are: a row in `past` says what an entry is, and the snippet
is cut from the thing itself. Steps are indexed some time after they are done; whoever searches has the rest indexed first.
"""

from __future__ import annotations

import json
import re

import msgspec
from sqlalchemy import Connection, text

_WORD = re.compile(r'"([^"]*)"|(\S+)')
_TERM = re.compile(r"\w+")
_LIKE_STEPS = 2000  # newest steps that are searched for a part of a word
_SNIPPET = 240  # characters
_RECENT = 0.15  # what the newest entry gains on the oldest, in bm25's points
_MOST_QUERY = 1000  # characters
_CREATE = (
    "CREATE TABLE IF NOT EXISTS past (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, source TEXT NOT NULL, UNIQUE (kind, source))",
    "CREATE VIRTUAL TABLE IF NOT EXISTS past_words USING fts5(words, content='', tokenize='unicode61')",
)
#: What is indexed: the source that names it, and its words; in the order in which it came.
_SOURCES = {
    "step": (
        "SELECT rollout || '/' || seq AS source, coalesce(reply,'') || char(10) || coalesce(observation,'') AS words"
        " FROM step WHERE state = 'done' AND {new} ORDER BY rowid LIMIT :most"
    ),
    "fold": "SELECT id AS source, summary AS words FROM fold WHERE {new} ORDER BY rowid LIMIT :most",
    "commit": (
        "SELECT id AS source, summary || char(10) || contribution AS words FROM milestone WHERE {new} ORDER BY rowid LIMIT :most"
    ),
    "said": (
        "SELECT seq AS source, body AS words FROM event WHERE kind IN ('said','answered') AND {new} ORDER BY seq LIMIT :most"
    ),
}
_KEYS = {
    "step": "rollout || '/' || seq",
    "fold": "fold.id",
    "commit": "milestone.id",
    "said": "CAST(event.seq AS TEXT)",
}
_NEW = "NOT EXISTS (SELECT 1 FROM past WHERE past.kind = '{kind}' AND past.source = {key})"


class Hit(msgspec.Struct, frozen=True):
    """Something that was found: a step, fold, commit or said, at which step, of which rollout, and where in it the words are."""

    kind: str
    rollout: str
    step: int
    name: str
    snippet: str


def create(connection: Connection) -> None:
    """Make the tables of the index, where this SQLite has full-text search."""
    for statement in _CREATE:
        if "fts5" not in statement or _has_fts(connection):
            connection.execute(text(statement))


def index_new(connection: Connection, most: int = 500) -> int:
    """Index up to `most` things of each kind that are not in the index yet, and return how many that were."""
    if not _has_fts(connection):
        return 0
    count = 0
    for kind, query in _SOURCES.items():
        new = _NEW.format(kind=kind, key=_KEYS[kind])
        rows = connection.execute(text(query.format(new=new)), {"most": most}).all()
        for row in rows:
            entry = {"k": kind, "s": str(row.source)}
            made = connection.execute(text("INSERT INTO past (kind, source) VALUES (:k, :s)"), entry)
            words = {"i": made.lastrowid, "w": row.words}
            connection.execute(text("INSERT INTO past_words (rowid, words) VALUES (:i, :w)"), words)
        count += len(rows)
    return count


def rename(connection: Connection, rollout: str, after: int, to: str) -> None:
    """Follow the steps of a rollout behind `after` to the rollout that they were moved to."""
    if not _has_fts(connection):
        return
    moved = "UPDATE past SET source = :to || '/' || substr(source, :cut) WHERE kind = 'step' AND source LIKE :of"
    cut = len(rollout) + 2
    later = " AND CAST(substr(source, :cut) AS INTEGER) > :after"
    connection.execute(text(moved + later), {"to": to, "cut": cut, "of": f"{rollout}/%", "after": after})


def find(connection: Connection, query: str, limit: int = 20, offset: int = 0) -> list[Hit]:
    """Return what a query finds, best first, recent things a little before old ones.

    All words, else any of them, else the last as a beginning, else a part of a word in the newest steps. "…" is a phrase.
    Raises ValueError for a query without a word.
    """
    terms = _terms(query)
    if not terms:
        raise ValueError('find="": give words to look for, such as find="timeout decision"')
    if _has_fts(connection):
        for match in (" AND ".join(terms), " OR ".join(terms), f"{terms[-1]}*"):
            hits = _matches(connection, match, query, limit, offset)
            if hits or offset:
                return hits
    return _parts(connection, query.strip().strip('"'), limit, offset)


def _terms(query: str) -> list[str]:
    """Return each word or phrase as FTS5 takes it: what is joined by signs, as parse_url, must stand side by side."""
    terms = []
    for phrase, word in _WORD.findall(query[:_MOST_QUERY].replace("\0", " ")):
        parts = _TERM.findall((phrase or word).replace("_", " "))
        if parts:
            terms.append('"' + " ".join(parts) + '"')
    return list(dict.fromkeys(terms))


def _matches(connection: Connection, match: str, query: str, limit: int, offset: int) -> list[Hit]:
    newest = connection.execute(text("SELECT max(id) FROM past")).scalar() or 1
    found = connection.execute(
        text(
            "SELECT p.kind, p.source FROM past_words JOIN past p ON p.id = past_words.rowid WHERE past_words MATCH :m"
            " ORDER BY bm25(past_words) - :recent * p.id / :newest LIMIT :limit OFFSET :offset"
        ),
        {"m": match, "recent": _RECENT, "newest": newest, "limit": limit, "offset": offset},
    ).all()
    hits = [_hit(connection, row.kind, row.source, query) for row in found]
    return [hit for hit in hits if hit is not None]


def _hit(connection: Connection, kind: str, source: str, query: str) -> Hit | None:
    """Read the thing that was found."""
    if kind == "step":
        rollout, _, seq = source.rpartition("/")
        query_step = text("SELECT rollout, seq, reply, observation FROM step WHERE rollout = :r AND seq = :s")
        row = connection.execute(query_step, {"r": rollout, "s": int(seq)}).first()
        if row is None:
            return None
        return Hit(kind, row.rollout, row.seq, "", _snippet(f"{row.reply or ''}\n{row.observation or ''}", query))
    if kind == "fold":
        row = connection.execute(
            text("SELECT rollout, first, last, summary FROM fold WHERE id = :s"), {"s": source}
        ).first()
        return (
            Hit(kind, row.rollout, row.last, f"{row.first}-{row.last}", _snippet(row.summary, query)) if row else None
        )
    if kind == "commit":
        row = connection.execute(
            text("SELECT rollout, branch, number, step, summary, contribution FROM milestone WHERE id = :s"),
            {"s": source},
        ).first()
        if row is None:
            return None
        words = _snippet(f"{row.summary}\n{row.contribution}", query)
        return Hit(kind, row.rollout, row.step, f"{row.branch} C{row.number}", words)
    row = connection.execute(text("SELECT rollout, step, body FROM event WHERE seq = :s"), {"s": int(source)}).first()
    if row is None:
        return None
    return Hit(kind, row.rollout or "", row.step or 0, "", _snippet(str(json.loads(row.body)["text"]), query))


def _parts(connection: Connection, part: str, limit: int, offset: int) -> list[Hit]:
    """Look for a part of a word, in the newest steps alone."""
    pattern = "%" + re.sub(r"([%_\\])", r"\\\1", part[:200]) + "%"
    rows = connection.execute(
        text(
            "SELECT rollout, seq, reply, observation FROM"
            " (SELECT * FROM step WHERE state = 'done' ORDER BY rowid DESC LIMIT :steps)"
            " WHERE reply LIKE :p ESCAPE '\\' OR observation LIKE :p ESCAPE '\\' LIMIT :limit OFFSET :offset"
        ),
        {"steps": _LIKE_STEPS, "p": pattern, "limit": limit, "offset": offset},
    )
    return [Hit("step", r.rollout, r.seq, "", _snippet(f"{r.reply or ''}\n{r.observation or ''}", part)) for r in rows]


def _snippet(words: str, query: str) -> str:
    """Cut the part of a text around the first place where a word of the query stands, the longest word first."""
    low = words.lower()
    wanted = sorted(_TERM.findall(query.lower().replace("_", " ")), key=len, reverse=True)
    at = next((found for term in wanted if (found := low.find(term)) >= 0), 0)
    start = max(0, at - _SNIPPET // 3)
    part = " ".join(words[start : start + _SNIPPET].split())
    return ("…" if start else "") + part + ("…" if start + _SNIPPET < len(words) else "")


def _has_fts(connection: Connection) -> bool:
    return bool(connection.execute(text("SELECT sqlite_compileoption_used('ENABLE_FTS5')")).scalar())
