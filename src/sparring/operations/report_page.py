"""A report: the app and the answers about one run, or about runs to compare, in one HTML file.

The file needs no server and no network. Its answers are compressed. A file that would become
larger than a megabyte leaves out rollouts, oldest first, and says how many.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from sparring.contracts.json import JsonObject, plain
from sparring.operations.app_answers import AppAnswer, AppAnswers
from sparring.operations.held_out import is_held_out
from sparring.operations.operation import Caller
from sparring.run_folder import RunFolder

BUNDLE = Path(__file__).parents[1] / "surfaces" / "web" / "static"  # the app, built from `web`
_MOST_BYTES = 1_000_000
_RESERVED_BYTES = 2_000  # for what follows the answers
_MAX_FLIPS = 12  # held-out cases that a report shows
_QUOTING_KINDS = ("prove", "ship")  # their reports show the results of held-out cases
SESSION: JsonObject = {"name": "", "role": "owner", "can_leave": False, "runs": "exported runs"}


class ReportPage:
    """One report while answers are added to it. `place` is the screen that it opens with."""

    def __init__(self, title: str, place: str) -> None:
        self._title = title
        self._place = place
        self._packer = zlib.compressobj(9, wbits=31)  # gzip, which browsers decompress
        self._packed = self._packer.compress(b'{"answers":{"":null')
        self._room = (_MOST_BYTES - len(_shell("", ""))) * 3 // 4 - _RESERVED_BYTES
        self.left_out: list[str] = []

    def add(self, answer: AppAnswer | None, *, is_optional: bool = False) -> bool:
        """Add an answer. Return whether it is in the report: an optional one needs room."""
        if answer is None:
            return False
        pair = f",{json.dumps(answer.key)}:{json.dumps(answer.content)}".encode()
        packer = self._packer.copy()
        packed = self._packed + packer.compress(pair) + packer.flush(zlib.Z_SYNC_FLUSH)
        if is_optional and len(packed) > self._room:
            return False
        self._packer, self._packed = packer, packed
        return True

    def add_all(self, answers: Iterable[AppAnswer]) -> None:
        """Add these answers, whatever their size."""
        for answer in answers:
            self.add(answer)

    def add_rollout(self, answers: AppAnswers, query: JsonObject) -> None:
        """Add one rollout, without its tokens."""
        if shown := answers.ask("rollout.show", query):
            record = {**shown.content["record"]}
            record.pop("rows", None)
            self.add(replace(shown, content={**shown.content, "record": record}))

    def add_rollouts(self, answers: AppAnswers, query: JsonObject) -> None:
        """Add the newest rollouts of a log in groups: lines of all, and whole rollouts, from the
        newest, while there is room."""
        pages = list(answers.pages(query))
        self.add_all(pages)
        lines = [line["id"] for page in pages for line in page.content["rollouts"]]
        known: set[str] = set()
        for rollout in reversed(lines):
            if rollout in known:
                continue
            group = answers.ask("rollout.group", {**query, "rollout": rollout})
            if self.add(group, is_optional=True) and group:
                known |= {str(each["record"]["id"]) for each in group.content["rollouts"]}
        name = "validation rollouts" if "log" in query else "rollouts"
        total = answers.count(query)
        if total > len(lines):
            self.left_out.append(f"{total - len(lines):,} of {total:,} {name}, the oldest")
        if missing := len(set(lines) - known):
            self.left_out.append(f"the conversations of {missing:,} of {len(lines):,} {name}")

    def html(self) -> str:
        """Return the file."""
        rest = {"session": SESSION, "place": self._place, "left_out": self.left_out}
        ending = f"}},{json.dumps(rest)[1:]}".encode()
        packed = self._packed + self._packer.compress(ending) + self._packer.flush()
        return _shell(base64.b64encode(packed).decode(), self._title)


def run_report(folder: RunFolder, caller: Caller) -> str:
    """Return the report of a run, with the facts of the training that it proves or ships.

    Of a proof on held-out cases, it shows the results and some cases whose outcome flipped; of
    other runs on held-out cases, no rollout.
    """
    page = ReportPage(folder.id, f"#/run/{folder.id}/report")
    answers = AppAnswers(caller, has_held_out=False)
    spec, query = folder.read_spec(), {"run": folder.id}
    kind = spec.get("kind")
    page.add_all(answers.about(folder.id, quotes_results=kind in _QUOTING_KINDS))
    if training := str(spec.get("run") or ""):
        page.add_all(answers.about(training))
    if is_held_out(folder):
        page.left_out.append("rollouts on held-out cases")
        if kind == "prove":
            _add_flips(page, answers, query)
        return page.html()
    if kind == "prove":
        page.add(answers.ask("rollout.pairs", query))
    page.add_rollouts(answers, query)
    if kind == "train":
        page.add_rollouts(answers, {**query, "log": "validation"})
    return page.html()


def _add_flips(page: ReportPage, answers: AppAnswers, query: JsonObject) -> None:
    """Add the cases of a proof that changed most, each with a rollout of both sides."""
    found = answers.ask("rollout.pairs", query)
    if found is None:
        return
    changed = [each for each in found.content["pairs"] if each["before"] != each["after"]]
    shown = changed[:_MAX_FLIPS]
    page.add(AppAnswer(found.name, query, {**found.content, "pairs": shown}))
    for pair in shown:
        for side in ("before_example", "after_example"):
            page.add_rollout(answers, {**query, "rollout": pair[side]})


def comparison_report(runs: Sequence[str], found: JsonObject, caller: Caller) -> str:
    """Return the report of a comparison: settings, curves, differences, and some flipped cases."""
    page = ReportPage(f"{len(runs)} runs compared", f"#/overlay?runs={','.join(runs)}")
    answers = AppAnswers(caller, has_held_out=False)
    page.add(AppAnswer("run.compare", {"runs": list(runs)}, plain(found)))
    for run in runs:
        page.add_all(answers.about(run))
    for difference in found["differences"]:
        for flip in difference["flips"][:_MAX_FLIPS]:
            for side, rollout in zip(
                difference["sides"], (flip["base"], flip["trained"]), strict=True
            ):
                player = f"{side['player']}/" if side["player"] else ""
                log = {"log": side["log"]} if side["log"] != "rollouts" else {}
                page.add_rollout(answers, {"run": side["run"], "rollout": player + rollout, **log})
    return page.html()


def _shell(answers: str, title: str) -> str:
    """Return the page with the app in it. Its policy permits the app's script alone, and no
    request."""
    style, script = ((BUNDLE / name).read_text() for name in ("app.css", "app.js"))
    script = script.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    icon = base64.b64encode((BUNDLE / "icon.svg").read_bytes()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    page = (BUNDLE / "index.html").read_text()
    parts = {
        "<title>Sparring</title>": f"<title>{html.escape(title)}</title>",
        '<meta charset="utf-8">': '<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<link rel="icon" href="./icon.svg">': (
            f'<link rel="icon" href="data:image/svg+xml;base64,{icon}">'
        ),
        '<link rel="stylesheet" href="./app.css">': f"<style>{style}</style>",
        '<script src="./app.js"></script>': (
            f'<script type="application/gzip" id="answers">{answers}</script>\n'
            f"<script>{script}</script>"
        ),
    }
    for part, inlined in parts.items():
        page = page.replace(part, inlined)
    return page
