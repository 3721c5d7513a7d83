"""A run of kind prove: base and trained play the same held-out cases, and one interval decides.

The trained weights are those that the training has when the proof begins. Both sides draw by the
same seeds, so that where nothing was learned, nothing differs.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sparring.contracts.cases import Case
from sparring.contracts.errors import InvalidInput, MachineryFailure, RunChanged, SparringError
from sparring.contracts.policies import Policy
from sparring.contracts.proof_specs import ProveSpec
from sparring.contracts.rollouts import Rollout, RolloutKey
from sparring.contracts.specs import FORMAT, PolicySpec
from sparring.environments import load_environment
from sparring.environments.environment import Environment, Parts, read_parts
from sparring.measures import MeasureSet
from sparring.player import Play
from sparring.policies.loading import load_policy
from sparring.proofs.audit import Sight, audit
from sparring.proofs.check_verdict import OF_THE_MODEL
from sparring.proofs.proof import Played, Proof, prove
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import Checkpoint, best_of, list_checkpoints
from sparring.run_folder.files import append_line, read_json, read_lines, write_json
from sparring.worker.auditing import Auditor, spread
from sparring.worker.holding import report_event
from sparring.worker.logged_play import LoggedPlay
from sparring.worker.playing import Beats, Progress
from sparring.worker.pulse import Pulse

BASE, TRAINED = "base", "trained"
_AUDITED_CASES = 4


@dataclass(frozen=True, slots=True)
class _Suite:
    """What one suite is played with: its own agent, world and measures."""

    name: str
    parts: Parts
    measures: MeasureSet
    cases: Sequence[Case]


class Proving:
    """One proof."""

    def __init__(
        self, folder: RunFolder, spec: ProveSpec, environment: Environment, pulse: Pulse
    ) -> None:
        self._folder = folder
        self._spec = spec
        self._environment = environment
        self._pulse = pulse
        self._chosen = self._checkpoint()
        self._audit: list[dict[str, Any]] | None = None

    def run(self) -> dict[str, Any]:
        started = time.monotonic()
        suites = [self._suite("", self._environment)]
        if self._spec.also:
            suites.append(self._suite("also-", load_environment(self._spec.also)))
        self._refuse_other_inputs(suites)
        asyncio.run(self._play_and_audit(suites))
        chances = self._chances()
        played = [self._both(suite) for suite in suites]
        _refuse_nothing(played[0])
        proof = prove(played[0], chances=chances, also=played[1] if len(played) > 1 else None)
        summary = self._summary(proof, chances, suites[0])
        summary |= {"audit": self._audit, "seconds": round(time.monotonic() - started, 1)}
        write_json(self._folder.summary, summary)
        return summary

    # ------------------------------------------------------------------ what is played

    def _suite(self, name: str, environment: Environment) -> _Suite:
        parts = read_parts(environment)
        measures = MeasureSet.of(
            parts.measures, environment.weights, seconds=self._spec.play.measure_seconds
        )
        return _Suite(
            name, parts, measures, list(parts.suite.cases(self._spec.split, self._spec.cases))
        )

    def _checkpoint(self) -> Checkpoint:
        """The one that is named; else the best on validation, or the last. A proof that goes on
        keeps to what it began with."""
        there = list_checkpoints(RunFolder(self._folder.path.parent / self._spec.run).checkpoints)
        if not there:
            raise InvalidInput(f"run {self._spec.run} has no checkpoint to prove")
        begun = [each for each in read_lines(self._folder.events) if each.get("event") == "proving"]
        wanted = begun[-1]["checkpoint"] if begun else self._spec.checkpoint
        if not wanted:
            return best_of(there) or there[-1]
        for each in there:
            if each.path.name == wanted:
                return each
        names = ", ".join(each.path.name for each in there)
        raise InvalidInput(f"run {self._spec.run} has no checkpoint {wanted}; there are {names}")

    def _refuse_other_inputs(self, suites: Sequence[_Suite]) -> None:
        digest = digest_of([case for suite in suites for case in suite.cases])
        for event in read_lines(self._folder.events):
            if event.get("event") == "proving" and event.get("cases") != digest:
                raise RunChanged(
                    f"proof {self._folder.id} was begun on other cases; start a new one"
                )
        report_event(self._folder, "proving", checkpoint=self._chosen.path.name, cases=digest)

    # ------------------------------------------------------------------ playing

    async def _play_and_audit(self, suites: Sequence[_Suite]) -> None:
        """A measure that nobody has audited proves little. In one loop: clients that a measure
        keeps belong to a loop."""
        await self._play(suites)
        first = suites[0]
        auditor = Auditor(first.measures, first.parts.world)
        self._pulse.watch(lambda: auditor.judged)
        self._pulse.note("auditing")
        try:
            await auditor.play_null(spread(first.parts.suite, _AUDITED_CASES))
        except SparringError as error:  # too few training cases, say: the proof stands
            report_event(self._folder, "warning", message=f"no audit: {error}")
            return
        for side in (BASE, TRAINED):
            for rollout in read_rollouts(self._folder, side):
                auditor.sights += [
                    Sight(told, f"{side}/{rollout.id}", rollout.case.id)
                    for told in rollout.judgements
                ]
        found = [each for each in audit(auditor.sights) if each.fault not in OF_THE_MODEL]
        self._audit = [{**asdict(each), "fault": each.fault.value} for each in found]

    async def _play(self, suites: Sequence[_Suite]) -> None:
        """One model after the other: two at once may not fit."""
        total = 2 * self._spec.rollouts * sum(len(suite.cases) for suite in suites)
        progress = Progress(total)
        playing: list[LoggedPlay] = []
        before = [0]

        def drawn() -> int:
            return before[0] + sum(each.tokens_drawn() for each in playing[-1:])

        beats = Beats(self._folder, progress, drawn)
        self._pulse.watch(lambda: progress.rollouts + drawn())
        trained = self._spec.policy.model_copy(update={"model": str(self._chosen.path)})
        async with beats.beating():
            for side, spec in ((BASE, self._spec.base), (TRAINED, trained)):
                beats.doing = f"loading the {side} model"
                self._pulse.note("loading")
                policy = await asyncio.to_thread(self._load, spec, suites[0].parts)
                beats.doing = f"playing the {side} model"
                self._pulse.note("playing", step=progress.rollouts)
                for suite in suites:
                    logged = self._logged(side, policy, suite)
                    playing.append(logged)
                    for rollout in logged.earlier():
                        progress.count(rollout)
                    await logged.run(lambda played: progress.count(played.rollout))
                before[0] = drawn()
                playing.clear()
                del policy, logged

    def _load(self, spec: PolicySpec, parts: Parts) -> Policy:
        return load_policy(spec, parts.agent.model, self._environment.family)

    def _logged(self, side: str, policy: Policy, suite: _Suite) -> LoggedPlay:
        return LoggedPlay(
            self._folder.rollouts_of(suite.name + side),
            lambda: self._plan(suite.cases),
            agent=suite.parts.agent,
            policy=policy,
            measures=suite.measures,
            play=self._spec.play,
            context=suite.parts.world,
        )

    def _plan(self, cases: Sequence[Case]) -> Iterator[Play]:
        for case in cases:
            for index in range(self._spec.rollouts):
                yield Play(RolloutKey(self._spec.play.seed, 0, case.id, index), case)

    def _both(self, suite: _Suite) -> Played:
        return Played(
            *(list(read_rollouts(self._folder, suite.name + side)) for side in (BASE, TRAINED))
        )

    # ------------------------------------------------------------------ what follows

    def _chances(self) -> int:
        """Among how many the weights were picked on these very cases: on validation cases, among
        all checkpoints that were validated; on held-out ones, as many as whoever asks says."""
        if self._spec.split != "validation":
            return self._spec.picked_from
        trained = RunFolder(self._folder.path.parent / self._spec.run)
        validated = {
            row["step"] for row in read_lines(trained.metrics) if "validation/reward" in row
        }
        return max(self._spec.picked_from, len(validated - {0}))

    def _earlier_proofs(self, digest: str) -> set[str]:
        """From the list of proofs, which outlives their folders, and from folders, which outlive
        the list."""
        told = [(row.get("proof"), row.get("cases")) for row in read_lines(self._folder.proofs)]
        for path in self._folder.path.parent.glob("proof-*/report/summary.json"):
            with contextlib.suppress(OSError, ValueError):
                summary = read_json(path)
                told.append((summary.get("run"), summary.get("cases_digest")))
        return {str(name) for name, cases in told if cases == digest} - {self._folder.id}

    def _summary(self, proof: Proof, chances: int, suite: _Suite) -> dict[str, Any]:
        spec = self._spec
        digest = digest_of(list(suite.parts.suite.cases(spec.split)))  # whatever part was played
        earlier = self._earlier_proofs(digest)
        summary = {
            "format": FORMAT,
            "kind": "prove",
            "run": self._folder.id,
            "environment": spec.environment,
            "training": spec.run,
            "checkpoint": str(self._chosen.path),
            "model": spec.base.model,
            "split": spec.split.value,
            "cases": len(suite.cases),
            "rollouts_per_case": spec.rollouts,
            "temperature": spec.play.temperature,
            "verdict": proof.standing.value,
            "sentence": proof.sentence,
            "level": proof.level.value if proof.level else None,
            "is_good": proof.is_good,
            "unmoved": list(proof.unmoved),
            "still_fails": [asdict(each) for each in proof.still_fails],
            "reward": asdict(proof.reward) if proof.reward else None,
            "measures": {
                each.name: {**asdict(each.difference), "is_guard": each.is_guard}
                for each in proof.measures
            },
            "also": asdict(proof.also) if proof.also else None,
            "also_environment": spec.also_environment,
            "regressed": list(proof.regressed),
            "flips": [asdict(each) for each in proof.flips],
            "unscored": proof.unscored,
            "picked_from": chances,
            "cases_digest": digest,
            "proofs_on_these_cases": len(earlier) + 1,
            "unsandboxed": spec.play.unsandboxed,
        }
        told = {"format": FORMAT, "proof": self._folder.id, "training": spec.run, "cases": digest}
        self._folder.proofs.parent.mkdir(exist_ok=True)
        append_line(self._folder.proofs, {**told, "verdict": proof.standing.value})
        return summary


def read_rollouts(folder: RunFolder, player: str) -> Iterator[Rollout]:
    """What one player of a run has played, read one at a time."""
    from sparring.run_folder.records import from_record
    from sparring.run_folder.rollout_log import RolloutLog

    for record in RolloutLog(folder.rollouts_of(player)).records():
        yield from_record(record)


def digest_of(cases: Sequence[Case]) -> str:
    """Which cases these are: each look at the same ones is counted."""
    digest = hashlib.sha256()
    for case in sorted(cases, key=lambda each: each.id):
        told = [case.id, case.input, case.expected, case.measures]
        digest.update(json.dumps(told, sort_keys=True, default=repr).encode())
    return digest.hexdigest()


def _refuse_nothing(played: Played) -> None:
    for side, rollouts in ((BASE, played.base), (TRAINED, played.trained)):
        if rollouts and all(each.reward is None for each in rollouts):
            why = rollouts[0].detail or "no measure could tell"
            raise MachineryFailure(f"no rollout of the {side} model could be scored: {why}")
