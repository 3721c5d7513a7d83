"""`python -m sparring.worker.comparing REPORT RUN_FOLDER …`: runs beside the first of them.

Prints what was found as JSON, and writes a report. What is compared case by case is the last that
each run played on cases that no weights were learned from: an evaluation's rollouts, what the
trained model played in a proof, or the last validation of a training.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sparring.contracts.errors import InvalidInput, SparringError
from sparring.contracts.rollouts import Rollout
from sparring.proofs.pictures import Curve
from sparring.proofs.proof import Played, prove
from sparring.proofs.report import comparison_report
from sparring.proofs.training_report import flat, panels_of
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json, write_text
from sparring.run_folder.metrics import history_of
from sparring.run_folder.records import from_record
from sparring.run_folder.rollout_log import GangLog

_LEFT_OUT = ("sources", "locks", "format", "run", "after", "code_digest", "services")
_FLIPS = 12


@dataclass(frozen=True, slots=True)
class Side:
    """One run, as far as it can be compared."""

    folder: RunFolder
    settings: dict[str, Any]
    history: list[dict[str, Any]]
    played: dict[str, list[Rollout]]  # by what it is, the best to compare first

    @property
    def by_id(self) -> dict[str, Rollout]:
        return {each.id: each for rollouts in self.played.values() for each in rollouts}


def read_side(folder: RunFolder) -> Side:
    spec = folder.read_spec()
    told = {name: value for name, value in spec.items() if name not in _LEFT_OUT}
    history = history_of(folder) if spec.get("kind") == "train" else []
    return Side(folder, flat(told), history, _rollouts(folder, spec))


def _rollouts(folder: RunFolder, spec: dict[str, Any]) -> dict[str, list[Rollout]]:
    """What can be held against another run, by the cases that were played."""
    kind = spec.get("kind")
    if kind == "prove":
        return {str(spec["split"]): _read([folder.rollouts_of("trained")])}
    if kind == "check":
        return {"training": _read([folder.rollouts_of("learner")])}
    if kind == "eval":
        return {str(spec["split"]): _read(folder.rollout_logs())}
    found: dict[str, list[Rollout]] = {}
    proof = RunFolder(folder.path.parent / f"proof-{folder.id}")
    if proof.summary.is_file():
        found[read_json(proof.summary)["split"]] = _read([proof.rollouts_of("trained")])
    validated = _read(sorted((folder.path / "validation").glob("rank-*")))
    last = max((each.key.step for each in validated), default=0)
    found["validation"] = [each for each in validated if each.key.step == last]
    return found


def _read(places: Sequence[Path]) -> list[Rollout]:
    log = GangLog([place for place in places if place.is_dir()])
    return [from_record(record) for record in log.records(0, len(log))]


def compare(sides: Sequence[Side]) -> dict[str, Any]:
    """Settings that differ, and each run's difference from the first, case by case."""
    first = sides[0]
    return {
        "format": 1,
        "runs": [side.folder.id for side in sides],
        "settings": _differing(sides),
        "differences": [_difference(first, other, len(sides) - 1) for other in sides[1:]],
    }


def _differing(sides: Sequence[Side]) -> list[tuple[str, list[Any]]]:
    names = list(dict.fromkeys(name for side in sides for name in side.settings))
    rows = [(name, [side.settings.get(name) for side in sides]) for name in names]
    return [(name, values) for name, values in rows if any(each != values[0] for each in values)]


def _difference(first: Side, other: Side, looks: int) -> dict[str, Any]:
    """Over the first kind of cases that both have played."""
    basis = next((each for each in first.played if _shared(first, other, each).base), "")
    proof = prove(_shared(first, other, basis), chances=looks)
    shown = {
        "run": other.folder.id,
        "basis": f"over the {basis} cases that both have played",
        "standing": proof.standing.value,
        "sentence": proof.sentence,
        "reward": asdict(proof.reward) if proof.reward else None,
        "measures": {each.name: asdict(each.difference) for each in proof.measures},
        "flips": [asdict(each) for each in proof.flips],
    }
    if not basis:
        has = " and ".join(
            f"{side.folder.id} has {', '.join(filter(side.played.get, side.played)) or 'none'}"
            for side in (first, other)
        )
        shown["basis"] = ""
        shown["sentence"] = (
            f"they have played no case in common ({has}); `sparring prove` gives both"
        )
    return shown


def _shared(first: Side, other: Side, basis: str) -> Played:
    """Cases that ask the same: ids may be numbers in two suites."""
    one, two = first.played.get(basis, []), other.played.get(basis, [])
    asked = {each.case.id: each.case.input for each in one}
    same = [each for each in two if asked.get(each.case.id) == each.case.input]
    shared = {each.case.id for each in same}
    return Played([each for each in one if each.case.id in shared], same)


def _panels(sides: Sequence[Side]) -> dict[str, list[Curve]]:
    """One line for each run; of what there are several of in a run, the first."""
    found: dict[str, list[Curve]] = {}
    for side in sides:
        for title, lines in panels_of(side.history).items():
            for line in lines[:1]:
                named = Curve(side.folder.id, line.steps, line.values)
                found.setdefault(title, []).append(named)
    return found


def _pairs(sides: Sequence[Side], compared: dict[str, Any]) -> dict[str, list[Any]]:
    by_id = [side.by_id for side in sides]
    return {
        difference["run"]: [
            (flip, by_id[0][flip["base"]], by_id[number][flip["trained"]])
            for flip in difference["flips"][:_FLIPS]
        ]
        for number, difference in enumerate(compared["differences"], 1)
    }


def main(report: str, folders: Sequence[str]) -> dict[str, Any]:
    sides = [read_side(RunFolder(Path(folder))) for folder in folders]
    if len(sides) < 2:
        raise InvalidInput("comparing takes two runs or more")
    compared = compare(sides)
    if report:
        document = comparison_report(compared, _panels(sides), _pairs(sides, compared))
        write_text(Path(report), document.html())
        write_text(Path(report).with_suffix(".md"), document.markdown())
    return compared


if __name__ == "__main__":
    try:
        print(json.dumps(main(sys.argv[1], sys.argv[2:])))
    except SparringError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
