"""Rollouts are listed page by page and shown whole, but not those of held-out cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.contracts.cases import Split
from sparring.contracts.errors import InvalidInput, NotPermitted
from sparring.contracts.rollouts import Ending
from sparring.contracts.specs import EvalSpec
from sparring.contracts.verdicts import Judgement, failed, passed
from sparring.operations import rollouts as module
from sparring.operations.operation import Caller, Role
from sparring.operations.rollouts import (
    ListRollouts,
    ShowRollout,
    list_rollouts,
    show_group,
    show_rollout,
    texts_of,
)
from sparring.run_folder import RunFolder
from sparring.run_folder.files import dump_line
from sparring.run_folder.records import to_record
from sparring.run_folder.rollout_log import RolloutWriter
from tests.operations.handmade import agent_in, owner_of
from tests.rollouts import rollout
from tests.surfaces.web.viewed import SECRET, TRAINING, make_secret, make_training, owner_in, played

REWARDS = [0.0, 1.0, None, 0.5, 1.0, 0.25, None]


def play(caller: Caller, name: str = "eval-1", split: Split = Split.VALIDATION) -> RunFolder:
    """A run of seven rollouts, over two ranks."""
    folder = RunFolder(caller.runs / name)
    folder.create(EvalSpec(target="shop.py:Shop", split=split).model_dump(mode="json"))
    for rank, chosen in ((0, range(4)), (1, range(4, 7))):
        with RolloutWriter(folder.rollouts(rank)) as writer:
            for number in chosen:
                reward = REWARDS[number]
                ending = Ending.ANSWERED if reward is not None else Ending.ROLLOUT_DEADLINE
                verdict = passed("yes") if reward == 1.0 else failed(f"wrong {number}")
                judged = (Judgement("right", verdict, 1.0, 0.5),) if reward is not None else ()
                writer.append(
                    rollout(
                        f"answer {number}" + "x" * 300,
                        id=f"c{number}",
                        reward=reward,
                        ending=ending,
                        judgements=judged,
                        detail="too slow" if reward is None else "",
                    ),
                    1.5,
                )
    return folder


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Caller:
    caller = owner_of(tmp_path_factory.mktemp("project"))
    play(caller)
    play(caller, "secret-1", Split.HELD_OUT)
    return caller


def pages(caller: Caller, **wanted: Any) -> list[int]:
    """The positions of all pages, one after the other."""
    found, start = [], 0
    while True:
        page = list_rollouts(ListRollouts(run="eval-1", start=start, **wanted), caller)
        found += [each.position for each in page.rollouts]
        if page.next is None:
            return found
        assert page.next > start
        start = page.next


@given(
    count=st.integers(1, 8),
    least=st.none() | st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    most=st.none() | st.sampled_from([0.0, 0.5, 1.0]),
)
@settings(max_examples=20)
def test_pages_of_any_size_hold_every_match_once_and_in_order(
    owner: Caller, count: int, least: float | None, most: float | None
) -> None:
    has_bound = least is not None or most is not None
    expected = [
        position
        for position, reward in enumerate(REWARDS)
        if (reward is None and not has_bound)
        or (
            reward is not None
            and (least is None or reward >= least)
            and (most is None or reward <= most)
        )
    ]
    assert pages(owner, count=count, min_reward=least, max_reward=most) == expected


def test_rollouts_are_found_by_their_ending(owner: Caller) -> None:
    assert pages(owner, ending=Ending.ROLLOUT_DEADLINE) == [2, 6]
    assert pages(owner, ending=Ending.TURN_LIMIT) == []


def test_a_page_reads_a_limited_number_of_entries_and_says_where_to_continue(
    owner: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_SCANNED", 2)
    page = list_rollouts(ListRollouts(run="eval-1", min_reward=0.25, max_reward=0.25), owner)
    assert (page.rollouts, page.next, page.total) == ((), 2, 7)
    assert pages(owner, min_reward=0.25, max_reward=0.25) == [5]


def test_a_start_beyond_the_end_is_an_empty_last_page(owner: Caller) -> None:
    page = list_rollouts(ListRollouts(run="eval-1", start=100), owner)
    assert (page.rollouts, page.next) == ((), None)


def test_a_line_says_why_a_rollout_did_not_pass(owner: Caller) -> None:
    lines = list_rollouts(ListRollouts(run="eval-1"), owner).rollouts
    reasons = [each.reason for each in lines]
    assert reasons[:4] == ["right: wrong 0", "", "too slow", "right: wrong 3"]
    assert all(len(each.answer) <= 200 for each in lines)


def test_the_page_after_a_cut_page_starts_at_the_cut(owner: Caller) -> None:
    page = list_rollouts(ListRollouts(run="eval-1", min_reward=0.25), owner)
    cut = page.first(2)
    assert [each.position for each in cut.rollouts] == [1, 3]
    assert cut.next == 4
    assert page.first(100) is page


def test_a_rollout_is_shown_whole_and_in_short_without_its_tokens(owner: Caller) -> None:
    (line,) = list_rollouts(ListRollouts(run="eval-1", start=4, count=1), owner).rollouts
    shown = show_rollout(ShowRollout(run="eval-1", rollout=line.id), owner)
    assert shown.record["answer"].startswith("answer 4")
    assert len(shown.record["answer"]) > 200
    assert shown.record.keys() - shown.short().record.keys() == {"rows", "format", "key"}
    with pytest.raises(InvalidInput, match=r"list eval-1` shows them; .* pass --log"):
        show_rollout(ShowRollout(run="eval-1", rollout="nothing"), owner)


def test_rollouts_of_held_out_cases_are_for_the_owner(owner: Caller) -> None:
    operator = agent_in(owner.folder)
    (line,) = list_rollouts(ListRollouts(run="secret-1", count=1), owner).rollouts
    with pytest.raises(NotPermitted, match="held-out cases, which only the owner may see"):
        list_rollouts(ListRollouts(run="secret-1"), operator)
    with pytest.raises(NotPermitted, match="held-out cases, which only the owner may see"):
        show_rollout(ShowRollout(run="secret-1", rollout=line.id), operator)
    assert list_rollouts(ListRollouts(run="eval-1"), operator).total == 7


RIGHT = to_record(played("lamps", 0, 0, is_right=True))
WRONG = to_record(played("lamps", 0, 1, is_right=False))


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        ({}, (True, True)),
        ({"case": "lamps"}, (True, True)),
        ({"case": "lamp"}, (False, False)),
        ({"question": "HOW MANY"}, (True, True)),
        ({"question": "how few"}, (False, False)),
        ({"verdict": "passed"}, (True, False)),
        ({"verdict": "failed"}, (False, True)),
        ({"verdict": "failed", "measure": "numeric"}, (False, True)),
        ({"verdict": "unscored"}, (False, False)),
        ({"measure": "other"}, (False, False)),
        ({"tool": "count"}, (True, True)),
        ({"tool": "cou"}, (False, False)),
        ({"text": "LUMP"}, (False, True)),
        ({"text": "look it up"}, (True, True)),
        ({"text": "no number in"}, (False, True)),
        ({"min_advantage": 0.0}, (True, False)),
        ({"max_advantage": 0.0, "text": "lump"}, (False, True)),
    ],
)
def test_each_filter_matches_the_right_rollouts_and_knows_whether_it_reads_records(
    wanted: dict[str, Any], matches: tuple[bool, bool]
) -> None:
    chosen = ListRollouts(run="shop-1", **wanted)
    assert (chosen.matches(RIGHT), chosen.matches(WRONG)) == matches
    assert chosen.needs_record is bool(wanted)


def test_a_rollout_that_one_of_two_measures_failed_has_not_passed() -> None:
    both = {**WRONG, "judgements": [*RIGHT["judgements"], *WRONG["judgements"]]}
    assert not ListRollouts(run="shop-1", verdict="passed").matches(both)
    assert ListRollouts(run="shop-1", verdict="failed").matches(both)


def test_a_rollout_that_no_measure_judged_is_unscored() -> None:
    bare = to_record(played("lamps", 0, 0, is_right=True, judgements=(), advantage=None))
    assert ListRollouts(run="shop-1", verdict="unscored").matches(bare)
    assert not ListRollouts(run="shop-1", min_advantage=-9.0).matches(bare)


def test_a_question_that_is_shown_as_json_is_found_as_it_is_shown() -> None:
    content = [{"role": "user", "content": {"ok": True}}]
    line = dump_line({"case": {"input": content}}).lower()
    for shown in ('"ok": true', '"content": {"ok"', '"role": "user", "content"'):
        assert all(
            needle in line for needle in ListRollouts(run="shop-1", question=shown).needles()
        )
    assert ListRollouts(run="shop-1", question="How many lamps").needles() == [b"how many lamps"]


def test_a_search_reads_messages_thinking_calls_and_reasons() -> None:
    text = " ".join(texts_of(RIGHT))
    for part in ("How many lamps", "I look it up.", "count", '"lamp"', "the last number is 12"):
        assert part in text


def test_siblings_are_found_from_any_of_them(tmp_path: Path) -> None:
    make_training(tmp_path / "runs", steps=3, group=5)
    for index in range(5):
        query = ShowRollout(run=TRAINING, rollout=f"lamps.1.{index}")
        group = show_group(query, owner_in(tmp_path))
        assert [each.record["id"] for each in group.rollouts] == [f"lamps.1.{n}" for n in range(5)]
        assert [each.position for each in group.rollouts] == [5, 6, 7, 8, 9]
        assert (group.case, group.step) == ("lamps", 1)
        assert "rows" not in group.rollouts[0].record


def test_a_missing_rollout_and_held_out_cases_are_refused(tmp_path: Path) -> None:
    make_training(tmp_path / "runs")
    make_secret(tmp_path / "runs")
    with pytest.raises(InvalidInput, match=r"no rollout 'lamps\.99\.0'"):
        show_group(ShowRollout(run=TRAINING, rollout="lamps.99.0"), owner_in(tmp_path))
    agent = Caller(Role.OPERATOR, tmp_path / "runs", "agent", folder=tmp_path)
    with pytest.raises(NotPermitted):
        show_group(ShowRollout(run=SECRET, rollout="plum.0.0"), agent)
