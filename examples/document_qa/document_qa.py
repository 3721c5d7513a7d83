"""Answers questions over a folder of documents, with a search and a read tool.

It comes with a small collection of its own, about the stations of a railway. For yours, set
`config.folder` to a folder of text or Markdown files with a `questions.jsonl` in it: one
question, answer and source (the name of a document, without its ending) a line.
"""

import re
import sqlite3
import threading
from pathlib import Path

from agents import Agent
from pydantic import Field

from sparring import Environment, Suite, call, failed, measure, passed, tool, worked_example

STATIONS = Path(__file__).with_name("documents")
# Questions done right: a small model copies what it sees. No document has their answers, so the
# results of the searches are stated.
EXAMPLES = [
    worked_example(
        question,
        call("search", query=query).returning(f"[{source}] {passage}"),
        answer=f"{number} [{source}]",
    )
    for question, query, source, passage, number in (
        ("How many lamps are at Rowan Pass?", "lamps Rowan Pass",
         "rowan_pass", "Beside it stand 14 lamps.", 14),
        ("When was Gorse Lane closed?", "Gorse Lane closed",
         "gorse_lane", "The halt was closed in 1931.", 1931),
        ("How long is the bridge of Fell Side?", "bridge Fell Side",
         "fell_side", "Its bridge is 62 metres long.", 62),
    )
]  # fmt: skip


class Library:
    """A collection behind SQLite's full-text index; every rollout looks into the same one."""

    def __init__(self, folder: Path) -> None:
        files = sorted(path for path in folder.rglob("*") if path.suffix in (".md", ".txt"))
        self.texts = {path.stem: path.read_text(errors="replace") for path in files}
        passages = [
            (name, passage.strip())
            for name, text in self.texts.items()
            for passage in text.split("\n\n")
            if passage.strip() and not passage.startswith("#")
        ]
        self._lock = threading.Lock()
        self._index = sqlite3.connect(":memory:", check_same_thread=False)
        self._index.execute("CREATE VIRTUAL TABLE part USING fts5(name, text, tokenize='porter')")
        self._index.executemany("INSERT INTO part VALUES (?, ?)", passages)

    def find(self, query: str, most: int) -> list[tuple[str, str]]:
        """The passages that fit best, each with the name of its document, which counts more."""
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", query))
        if not words:
            return []
        with self._lock:
            return self._index.execute(
                "SELECT name, text FROM part WHERE part MATCH ? "
                "ORDER BY bm25(part, 4.0, 1.0) LIMIT ?",
                (words, most),
            ).fetchall()


class Reader:
    """What one rollout can do, and what it has looked at."""

    def __init__(self, library: Library, results: int) -> None:
        self._library, self._results = library, results
        self.seen: set[str] = set()

    @tool
    def search(self, query: str) -> str:
        """Search the documents."""
        found = self._library.find(query, self._results)
        self.seen |= {name for name, _ in found}
        return "\n".join(f"[{name}] {text}" for name, text in found) or "nothing found"

    @tool
    def read(self, document: str) -> str:
        """Read a whole document."""
        self.seen.add(document)
        return self._library.texts.get(document, f"there is no document {document}")


@measure
def answers(rollout):
    """The answer that was expected stands in what was said, as a word of its own."""
    if re.search(rf"(?<!\w){re.escape(rollout.expected)}(?!\w)", rollout.answer):
        return passed(f"says {rollout.expected}")
    return failed(f"does not say {rollout.expected}")


@measure
def cites_its_source(rollout):
    """The right document is named in brackets, and it was really looked at."""
    source = rollout.case.fields["source"]
    cited = re.findall(r"\[([\w-]+)\]", rollout.answer)
    if cited != [source]:
        return failed(f"cites {', '.join(cited) or 'nothing'}, not {source}")
    if source not in rollout.world.seen:
        return failed(f"cites {source} without having looked at it")
    return passed(f"cites {source}")


class DocumentQA(Environment):
    """Questions over documents, to be answered with the document that says so."""

    name = "document_qa"
    measures = (answers, cites_its_source)
    examples = EXAMPLES
    settings = {"max_completion_length": 256, "max_turns": 3}

    class Config(Environment.Config):
        folder: Path = Field(STATIONS, description="documents, with questions.jsonl among them")
        results: int = Field(2, ge=1, le=20, description="passages that a search shows")

    def agent(self) -> Agent:
        return Agent(
            name="librarian",
            instructions="Search first. Then answer shortly, and name the document in brackets.",
            model="smollm2",
        )

    def suite(self) -> Suite:
        return Suite.from_jsonl(
            self.config.folder / "questions.jsonl",
            input="question",
            expected="answer",
            shares={"training": 0.5, "validation": 0.2, "held-out": 0.3},
        )

    def world(self, case):
        if not hasattr(self, "_library"):
            self._library = Library(Path(self.config.folder))
        return Reader(self._library, self.config.results)
