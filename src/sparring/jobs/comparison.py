"""`python -m sparring.jobs.comparison RUN_FOLDER …`: compares the first run with the others.

Prints the comparison as JSON. Runs are compared case by case, on one split: by all rollouts of an
evaluation, the trained model's rollouts in a proof, those of the model to be trained in a check, a
file's held-out rollouts in a shipment, or a training run's automatic proof or last validation.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sparring.contracts.cases import Split
from sparring.contracts.errors import InvalidInput, SparringError
from sparring.contracts.kinds import run_kind
from sparring.contracts.rollouts import Rollout
from sparring.contracts.summaries import ProveSummary
from sparring.proofs.proof import PlayedSides, prove
from sparring.run_folder import RunFolder
from sparring.run_folder.contents import find_summary
from sparring.run_folder.held_out_ledger import count_candidates
from sparring.run_folder.sharded_log import read_rollouts

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


@dataclass(frozen=True, slots=True)
class PlayedCases:
    """Rollouts that can be compared, and where they are: a run, its log, and the player's name."""

    run: str
    rollouts: list[Rollout] = field(default_factory=list)
    player: str = ""
    log: str = "rollouts"

    def place(self) -> dict[str, str]:
        """Return where the rollouts are."""
        return {"run": self.run, "log": self.log, "player": self.player}


@dataclass(frozen=True, slots=True)
class Side:
    """The parts of one run that can be compared."""

    folder: RunFolder
    settings: dict[str, Any]
    played: dict[str, PlayedCases]  # by split, the best basis of comparison first

    def on(self, split: str) -> PlayedCases:
        """Return what the run has played on a split; nothing if it has not played it."""
        return self.played.get(split) or PlayedCases(self.folder.id)


def read_side(folder: RunFolder) -> Side:
    """Read the comparable parts of a run from its folder."""
    spec = folder.read_spec()
    settings = {name: value for name, value in spec.items() if name not in _IGNORED_FIELDS}
    return Side(folder, flat(settings), played_cases(folder, spec))


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested settings into a dictionary with dotted names."""
    values: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping) and value:
            values |= flat(value, f"{prefix}{name}.")
        else:
            values[f"{prefix}{name}"] = value
    return values


def played_cases(folder: RunFolder, spec: Mapping[str, Any]) -> dict[str, PlayedCases]:
    """Return the rollouts that can be compared with those of another run, by split."""
    kind = run_kind(str(spec.get("kind")), folder.spec)
    split = str(spec.get("split", Split.HELD_OUT.value))
    is_held_out = kind.plays_held_out and split == Split.HELD_OUT
    if is_held_out and not folder.summary.is_file():
        return {}  # interim results would be a look that the held-out ledger does not count
    return _PLAYED[kind.name](folder, split) if kind.name in _PLAYED else {}


def _of_player(folder: RunFolder, player: str) -> PlayedCases:
    return PlayedCases(folder.id, read_rollouts([folder.rollouts_of(player)]), player)


def _of_training(folder: RunFolder, _: str) -> dict[str, PlayedCases]:
    """Return the trained model's rollouts in its proof and in the last validation, by split."""
    found: dict[str, PlayedCases] = {}
    proof = RunFolder(folder.path.parent / f"proof-{folder.id}")
    if summary := find_summary(proof, ProveSummary):
        found[summary.split] = _of_player(proof, "trained")
    validated = read_rollouts(folder.rollout_logs("validation"))
    last = max((each.key.step for each in validated), default=0)
    newest = [each for each in validated if each.key.step == last]
    return {**found, "validation": PlayedCases(folder.id, newest, log="validation")}


# By kind of run. The null players of an audit are not models to compare.
_PLAYED: Mapping[str, Callable[[RunFolder, str], dict[str, PlayedCases]]] = {
    "train": _of_training,
    "eval": lambda folder, split: {
        split: PlayedCases(folder.id, read_rollouts(folder.rollout_logs()))
    },
    "check": lambda folder, _: {"training": _of_player(folder, "learner")},
    "prove": lambda folder, split: {split: _of_player(folder, "trained")},
    "ship": lambda folder, _: {"held-out": _of_player(folder, "held-out")},
}


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
    sides = [side.on(basis).place() for side in (first, other)]
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
        "sides": sides,
    }
    if not basis:
        splits = " and ".join(
            f"{side.folder.id} played "
            f"{', '.join(name for name, each in side.played.items() if each.rollouts) or 'none'}"
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
    one, two = first.on(basis).rollouts, other.on(basis).rollouts
    inputs = {each.case.id: each.case.input for each in one}
    same = [each for each in two if inputs.get(each.case.id) == each.case.input]
    shared = {each.case.id for each in same}
    return PlayedSides([each for each in one if each.case.id in shared], same)


def main(folders: Sequence[str]) -> dict[str, Any]:
    """Compare the runs in these folders."""
    if len(folders) < 2:
        raise InvalidInput("a comparison takes two runs or more")
    return compare([read_side(RunFolder(Path(folder))) for folder in folders])


if __name__ == "__main__":
    try:
        print(json.dumps(main(sys.argv[1:])))
    except SparringError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
