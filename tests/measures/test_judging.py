from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.errors import MeasureError
from sparring.contracts.rollouts import Ending
from sparring.contracts.verdicts import Judgement, cannot_tell, failed, passed, scored
from sparring.measures import MeasureSet
from sparring.measures.builtin import BUILTIN
from sparring.measures.declaration import Measure, measure
from sparring.measures.judging import blend, resolve
from tests.rollouts import rollout


@measure(name="mine")
def own(rollout: Any) -> Any:
    return passed("yes")


def plain(rollout: Any) -> bool:
    return True


def test_a_measure_is_itself_and_a_function_becomes_one() -> None:
    assert resolve(own) is own
    assert resolve(plain) == Measure("plain", plain)


@pytest.mark.parametrize(("attribute", "name"), [("own", "mine"), ("plain", "plain")])
def test_ones_own_measure_is_found_by_module_and_name(attribute: str, name: str) -> None:
    found = resolve(f"{__name__}:{attribute}")
    assert found.name == name


def test_a_built_in_name_is_found_and_gives_what_it_declares() -> None:
    name = "exact" if "exact" in BUILTIN else sorted(BUILTIN)[0]
    assert resolve(name).name == BUILTIN[name]().name


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(MeasureError) as refused:
        resolve("exakt")
    assert "there is no built-in measure 'exakt'" in str(refused.value)
    assert all(name in str(refused.value) for name in BUILTIN)
    assert "`module:name`" in str(refused.value)


@pytest.mark.parametrize("name", ["no_such_module:x", f"{__name__}:no_such_name"])
def test_a_module_or_name_that_is_not_there_is_refused_with_the_cause(name: str) -> None:
    with pytest.raises(MeasureError, match=rf"measure '{name}' cannot be loaded: .*no_such"):
        resolve(name)


@pytest.mark.parametrize("reference", [3, None, f"{__name__}:__file__"])
def test_an_object_that_is_no_measure_is_refused(reference: Any) -> None:
    with pytest.raises(MeasureError):
        resolve(reference)


def test_a_measure_of_an_installed_package_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shipped_measures.py").write_text("def tidy(rollout):\n    return True\n")
    info = tmp_path / "shipped_measures-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shipped_measures\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[sparring.measures]\nneat = shipped_measures:tidy\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    assert resolve("neat").name == "tidy"
    with pytest.raises(MeasureError, match="neat"):
        resolve("untidy")


@measure
def good(rollout):
    return passed("good")


@measure
async def slow(rollout):
    await asyncio.sleep(5)
    return passed("late")


@measure
def stuck(rollout):
    time.sleep(2)
    return passed("late")


@measure
def broken(rollout):
    raise RuntimeError("boom")


@measure
def sloppy(rollout):
    return "yes"


def judged(measures, played=None, **options):
    measure_set = MeasureSet.of(measures, options.pop("weights", None), seconds=0.5, **options)
    return asyncio.run(measure_set.judge(played or rollout("x")))


@pytest.mark.parametrize(
    ("bad", "cause"),
    [
        (broken, "RuntimeError: boom (test_judging.py:"),
        (slow, "no verdict within 0.5 s"),
        (stuck, "no verdict within 0.5 s"),
        (sloppy, "return passed"),
    ],
)
def test_a_measure_that_breaks_leaves_the_rollout_unscored_with_the_cause(bad, cause):
    result = judged([good, bad])
    assert result.reward is None
    assert cause in (result.judgements[1].cause or "")
    assert result.judgements[0].is_correct is True


def test_a_silent_measure_that_is_not_rewarded_does_not_matter():
    result = judged([good, broken], weights={"broken": 0})
    assert result.reward == 1.0
    assert result.judgements[1].verdict.score is None


def test_measures_that_only_the_case_names_are_judged_and_count_in_the_reward():
    result = judged([good], rollout("Paris", "Rome", measures=("exact",)))
    assert [judgement.measure for judgement in result.judgements] == ["good", "exact"]
    assert result.judgements[1].weight == 1
    assert result.reward == 0.5


def test_a_rollout_that_ended_through_no_doing_of_the_model_is_not_judged():
    result = judged([good], rollout("x", ending=Ending.INFRASTRUCTURE_ERROR))
    assert result.judgements == ()
    assert result.reward is None


def test_a_declared_range_is_brought_to_the_unit_scale():
    @measure(range=(0, 10), threshold=0.7)
    def graded(rollout):
        return scored(7, "seven of ten")

    result = judged([graded])
    assert result.reward == pytest.approx(0.7)
    assert result.judgements[0].is_correct is True


@pytest.mark.parametrize(("returned", "reward"), [(True, 1.0), (False, 0.0), (0.25, 0.25), (1, 1)])
def test_a_truth_value_or_a_number_will_do_for_a_verdict(returned, reward):
    result = judged([measure(name="plain")(lambda rollout: returned)])
    assert result.reward == reward
    assert result.judgements[0].verdict.reason == f"plain returned {returned}"


def test_a_score_outside_of_its_range_cannot_be_used():
    @measure
    def wild(rollout):
        return scored(7, "seven")

    assert "range" in (judged([wild]).judgements[0].cause or "")


def test_unknown_names_and_weights_are_refused_with_those_there_are():
    with pytest.raises(MeasureError, match="use one of contains"):
        MeasureSet.of(["exactly"])
    with pytest.raises(MeasureError, match="weights name typo, but the measures are good"):
        MeasureSet.of([good], {"typo": 1})
    with pytest.raises(MeasureError, match="at least one measure"):
        MeasureSet.of([])
    with pytest.raises(MeasureError, match="two measures are called good"):
        MeasureSet.of([good, good])


def test_a_measure_must_take_the_rollout_alone():
    with pytest.raises(MeasureError, match="one argument, the rollout"):
        measure(lambda answer, expected: passed("x"))


scores = st.one_of(st.none(), st.floats(0, 1))
weights = st.floats(0, 10)


@given(st.lists(st.tuples(scores, weights)))
def test_the_reward_lies_between_the_verdicts_or_is_none(pairs):
    judgements = [
        Judgement(f"m{n}", cannot_tell("?") if score is None else scored(score, "s"), weight)
        for n, (score, weight) in enumerate(pairs)
    ]
    reward = blend(judgements)
    rewarded = [score for score, weight in pairs if weight > 0]
    if not rewarded or None in rewarded:
        assert reward is None
    else:
        assert reward is not None
        assert min(rewarded) - 1e-9 <= reward <= max(rewarded) + 1e-9


def test_weights_decide_the_share_of_each_measure():
    judgements = [Judgement("a", passed("x"), 3.0), Judgement("b", failed("x"), 1.0)]
    assert blend(judgements) == pytest.approx(0.75)


def test_a_case_can_name_ready_measures_only():
    """Names come from data: nothing may be imported, let alone called, for them."""
    for name in ("sys:exit", "os:abort", "nobody"):
        result = judged([good], rollout("x", measures=(name,)))
        assert result.reward is None
        assert "add it to the environment's measures" in (result.judgements[1].cause or "")


def test_a_measure_that_exits_the_process_only_breaks():
    @measure
    async def leaves(rollout):
        raise SystemExit(2)

    @measure
    def leaves_too(rollout):
        raise SystemExit(2)

    assert all("SystemExit" in (j.cause or "") for j in judged([leaves, leaves_too]).judgements)
