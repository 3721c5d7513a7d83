"""`python -m sparring.jobs.comparison REPORT RUN_FOLDER …`: compares the first run with the others.

Prints the comparison as JSON and writes a report. Runs are compared case by case, on one split: by
all rollouts of an evaluation, the trained model's rollouts in a proof, those of the model to be
trained in a check, a file's held-out rollouts in a shipment, or a training run's automatic proof or
last validation. Each kind of run declares its rollouts (`comparable` in its report module).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sparring.contracts.cases import Split
from sparring.contracts.errors import InvalidInput, SparringError
from sparring.contracts.kinds import run_kind
from sparring.contracts.rollouts import Rollout
from sparring.contracts.summaries import Flip
from sparring.jobs.report import report_module
from sparring.proofs.proof import PlayedSides, prove
from sparring.reports.pictures import Curve
from sparring.reports.run_reports import comparison_report
from sparring.reports.training_report import PASS_RATE, flat, panels_of
from sparring.run_folder import RunFolder
from sparring.run_folder.files import write_text
from sparring.run_folder.held_out_ledger import count_candidates
from sparring.run_folder.metrics import read_history_rows

_IGNORED_FIELDS = (
    "sources",
    "locks",
    "format",
    "run",
    "after",
    "plan",
    "code_digest",
    "code_files",
    "services",
)
_FLIPS = 12


@dataclass(frozen=True, slots=True)
class Side:
    """The parts of one run that can be compared."""

    folder: RunFolder
    settings: dict[str, Any]
    history: list[dict[str, Any]]
    played: dict[str, list[Rollout]]  # by split, the best basis of comparison first

    @property
    def by_id(self) -> dict[str, Rollout]:
        """All rollouts, by id."""
        return {each.id: each for rollouts in self.played.values() for each in rollouts}


def read_side(folder: RunFolder) -> Side:
    """Read the comparable parts of a run from its folder."""
    spec = folder.read_spec()
    settings = {name: value for name, value in spec.items() if name not in _IGNORED_FIELDS}
    history = (
        read_history_rows(folder)
        if run_kind(str(spec.get("kind")), folder.spec).has_metrics
        else []
    )
    return Side(folder, flat(settings), history, _rollouts(folder, spec))


def _rollouts(folder: RunFolder, spec: dict[str, Any]) -> dict[str, list[Rollout]]:
    """Return the rollouts that can be compared with those of another run, by split."""
    kind = run_kind(str(spec.get("kind")), folder.spec)
    is_held_out = kind.plays_held_out and spec.get("split", Split.HELD_OUT) == Split.HELD_OUT
    if is_held_out and not folder.summary.is_file():
        return {}  # interim results would be a look that the held-out ledger does not count
    found: dict[str, list[Rollout]] = report_module(kind.name).comparable(folder, spec)
    return found


def compare(sides: Sequence[Side]) -> dict[str, Any]:
    """Return the settings that differ, and for each later run its difference from the first."""
    first = sides[0]
    return {
        "format": 1,
        "runs": [side.folder.id for side in sides],
        "settings": _differing_settings(sides),
        "differences": [_difference(first, other, len(sides) - 1) for other in sides[1:]],
    }


def _differing_settings(sides: Sequence[Side]) -> list[tuple[str, list[Any]]]:
    names = list(dict.fromkeys(name for side in sides for name in side.settings))
    rows = [(name, [side.settings.get(name) for side in sides]) for name in names]
    return [(name, values) for name, values in rows if any(each != values[0] for each in values)]


def _difference(first: Side, other: Side, looks: int) -> dict[str, Any]:
    """Return the difference on the first split in which both have played a common case."""
    basis = next((each for each in first.played if _shared(first, other, each).base), "")
    if basis == Split.HELD_OUT:
        looks = max(looks, *(_candidates(side.folder) for side in (first, other)))
    proof = prove(_shared(first, other, basis), chances=looks)
    difference = {
        "run": other.folder.id,
        "basis": f"over the {basis} cases that both have played",
        "standing": proof.verdict.value,
        "sentence": proof.sentence,
        "reward": asdict(proof.reward) if proof.reward else None,
        "measures": {name: asdict(each) for name, each in proof.measures.items()},
        "flips": [asdict(each) for each in proof.flips],
    }
    if not basis:
        splits = " and ".join(
            f"{side.folder.id} played {', '.join(filter(side.played.get, side.played)) or 'none'}"
            for side in (first, other)
        )
        difference["basis"] = ""
        difference["sentence"] = (
            f"the two runs have no case in common ({splits}); prove both, then compare the proofs"
        )
    return difference


def _candidates(folder: RunFolder) -> int:
    """Return the number of candidates that the ledger counted for this run or for its proof."""
    proof = RunFolder(folder.path.parent / f"proof-{folder.id}")
    return max(count_candidates(folder), count_candidates(proof))


def _shared(first: Side, other: Side, basis: str) -> PlayedSides:
    """Return both runs' rollouts of the cases with equal id and input; in two suites, the same id
    may name different cases."""
    one, two = first.played.get(basis, []), other.played.get(basis, [])
    inputs = {each.case.id: each.case.input for each in one}
    same = [each for each in two if inputs.get(each.case.id) == each.case.input]
    shared = {each.case.id for each in same}
    return PlayedSides([each for each in one if each.case.id in shared], same)


def panels_to_compare(sides: Sequence[Side]) -> dict[str, list[Curve]]:
    """Return the panels, each with one curve per run. Pass rates have a panel for each measure; of
    another panel with several curves, the first is compared."""
    panels: dict[str, list[Curve]] = {}
    for side in sides:
        for title, lines in panels_of(side.history).items():
            is_rates = title == PASS_RATE
            for line in lines if is_rates else lines[:1]:
                curve = Curve(side.folder.id, line.steps, line.values)
                panel = f"{title} of {line.label}" if is_rates else title
                panels.setdefault(panel, []).append(curve)
    return panels


def _pairs(sides: Sequence[Side], compared: dict[str, Any]) -> dict[str, list[Any]]:
    by_id = [side.by_id for side in sides]
    return {
        difference["run"]: [
            (flip, by_id[0][flip.base], by_id[number][flip.trained])
            for flip in [Flip(**each) for each in difference["flips"][:_FLIPS]]
        ]
        for number, difference in enumerate(compared["differences"], 1)
    }


def main(report: str, folders: Sequence[str]) -> dict[str, Any]:
    """Compare runs. If `report` is not empty, write HTML to that path and Markdown beside it."""
    sides = [read_side(RunFolder(Path(folder))) for folder in folders]
    if len(sides) < 2:
        raise InvalidInput("a comparison takes two runs or more")
    compared = compare(sides)
    if report:
        document = comparison_report(compared, panels_to_compare(sides), _pairs(sides, compared))
        write_text(Path(report), document.html())
        write_text(Path(report).with_suffix(".md"), document.markdown())
    return compared


if __name__ == "__main__":
    try:
        print(json.dumps(main(sys.argv[1], sys.argv[2:])))
    except SparringError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
