"""Writes chosen runs as a folder that any web server can host and a browser can open from disk.

The folder holds the app and a server's responses to the app's requests. A page opened from
file:// cannot load modules or fetch files, so each response is a script.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from sparring.contracts.errors import InvalidInput
from sparring.contracts.json import JsonObject
from sparring.operations.app_answers import AppAnswer, AppAnswers
from sparring.operations.held_out import is_held_out
from sparring.operations.operation import Caller
from sparring.operations.report_page import BUNDLE, SESSION
from sparring.runs.finding import find_run


class Export:
    """One export. Without `has_held_out`, it shows runs on held-out cases as a viewer sees them,
    without their rollouts."""

    def __init__(self, folder: Path, caller: Caller, *, has_held_out: bool) -> None:
        self._folder = folder
        self._caller = caller
        self._answers = AppAnswers(caller, has_held_out=has_held_out)
        self._has_held_out = has_held_out
        self._index: dict[str, str] = {}
        self.left_out: list[str] = []

    def write(self, names: list[str]) -> int:
        """Write the app and the data of these runs, and return the number of data files."""
        if self._folder.exists() and any(self._folder.iterdir()):
            raise InvalidInput(f"{self._folder} is not empty; name a new folder")
        runs = [find_run(self._caller.runs, name).id for name in names]
        (self._folder / "data").mkdir(parents=True, exist_ok=True)
        lines = [line for line in self._lines() if line["run"] in runs]
        self._store(AppAnswer("run.list", {"count": 50}, {"runs": lines, "next": ""}))
        trained = [line["run"] for line in lines if line["kind"] == "train"]
        self._store(self._answers.ask("run.trends", {"runs": trained}, as_viewer=True))
        for run in runs:
            self._write_run(run)
        shown = json.dumps({"session": SESSION, "index": self._index})
        (self._folder / "export.js").write_text(f"window.SPARRING_EXPORT = {_safe(shown)};\n")
        for path in BUNDLE.iterdir():
            shutil.copy(path, self._folder / path.name)
        page = (BUNDLE / "index.html").read_text()
        script = '<script src="./export.js"></script>\n<script src="./app.js">'
        (self._folder / "index.html").write_text(page.replace('<script src="./app.js">', script))
        return len(self._index)

    def _write_run(self, run: str) -> None:
        folder = find_run(self._caller.runs, run)
        for answer in self._answers.about(run):
            self._store(answer)
        if not self._has_held_out and is_held_out(folder):
            self.left_out.append(run)
            return
        kind = folder.read_spec().get("kind")
        query: JsonObject = {"run": run}
        if kind == "prove":
            self._store(self._answers.ask("rollout.pairs", query))
        logs: tuple[JsonObject, ...] = ({}, {"log": "validation"}) if kind == "train" else ({},)
        for log in logs:
            for page in self._answers.pages({**query, **log}):
                self._store(page)
                for line in page.content["rollouts"]:
                    one = {**query, **log, "rollout": line["id"]}
                    for name in ("rollout.show", "rollout.group", "rollout.tokens"):
                        self._store(self._answers.ask(name, one))

    def _lines(self) -> Iterator[JsonObject]:
        after = ""
        while page := self._answers.ask(
            "run.list", {"count": 1000, "after": after}, as_viewer=True
        ):
            yield from page.content["runs"]
            after = page.content["next"]
            if not after:
                return

    def _store(self, answer: AppAnswer | None) -> None:
        if answer is None:
            return
        file = f"data/{hashlib.sha256(answer.key.encode()).hexdigest()[:24]}.js"
        content = _safe(json.dumps(answer.content))
        text = f"sparringAnswer({_safe(json.dumps(answer.key))},{content});\n"
        (self._folder / file).write_text(text)
        self._index[answer.key] = f"./{file}"


def _safe(text: str) -> str:
    """Escape `<`, U+2028 and U+2029, so that the JSON is safe inside a script."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
