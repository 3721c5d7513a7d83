"""Which artefact plays held-out cases, and what a shipment ends with."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.contracts.kinds import Form
from sparring.contracts.summaries import ArtefactRow, HeldOutRow
from sparring.jobs.ship.verdict import ShipVerdict, choose, headline, verdict_of
from sparring.shipping.artefacts import Artefact
from tests.summaries import complete


def artefact(place: Path, name: str, form: Form, size: int) -> Artefact:
    path = place / name.replace(" ", "-")
    path.write_bytes(b"x" * size)
    return Artefact(name, form, path, name.rpartition(" ")[2])


@pytest.fixture
def made(tmp_path: Path) -> list[Artefact]:
    return [
        artefact(tmp_path, "merged", Form.MERGED, 500),
        artefact(tmp_path, "gguf f16", Form.GGUF, 300),
        artefact(tmp_path, "gguf q8_0", Form.GGUF, 200),
        artefact(tmp_path, "gguf q4_k_m", Form.GGUF, 100),
    ]


def rows(**likeness: str) -> dict[str, ArtefactRow]:
    names = {"f16": "gguf f16", "q8": "gguf q8_0", "q4": "gguf q4_k_m"}
    found = {"merged": complete(ArtefactRow, {})}
    for key, name in names.items():
        played = {"likeness": likeness[key], "sentence": "s"}
        found[name] = complete(ArtefactRow, {"validation": played})
    return found


def test_without_a_comparison_the_first_gguf_file_or_the_merged_model_plays(
    made: list[Artefact],
) -> None:
    by_name = rows(f16="equal", q8="equal", q4="equal")
    assert choose(made, by_name, is_compared=False).name == "gguf f16"
    assert choose(made[:1], by_name, is_compared=True).name == "merged"


@pytest.mark.parametrize(
    ("likeness", "chosen"),
    [
        ({"f16": "equal", "q8": "equal", "q4": "equal"}, "gguf q4_k_m"),
        ({"f16": "equal", "q8": "equal", "q4": "worse"}, "gguf q8_0"),
        ({"f16": "equal", "q8": "cannot tell", "q4": "cannot tell"}, "gguf f16"),
        ({"f16": "cannot tell", "q8": "cannot tell", "q4": "worse"}, "gguf q8_0"),
        ({"f16": "worse", "q8": "worse", "q4": "worse"}, "gguf f16"),
    ],
)
def test_a_comparison_chooses_the_smallest_that_is_as_good(
    made: list[Artefact], likeness: dict[str, str], chosen: str
) -> None:
    assert choose(made, rows(**likeness), is_compared=True).name == chosen


def test_a_file_that_is_warned_about_is_not_chosen(made: list[Artefact]) -> None:
    by_name = rows(f16="equal", q8="equal", q4="equal")
    warned = {"warning": "it may have undone part of the training"}
    by_name["gguf q4_k_m"] = by_name["gguf q4_k_m"].model_copy(update=warned)
    assert choose(made, by_name, is_compared=True).name == "gguf q8_0"


def held_out(likeness: str, is_improved: bool, missing: str = "") -> HeldOutRow:
    given = {"likeness": likeness, "is_improved": is_improved, "missing": missing}
    return complete(HeldOutRow, {"sentence": "s", "against_base": "b", **given})


@pytest.mark.parametrize(
    ("likeness", "is_improved", "is_fine"),
    [
        ("equal", True, True),
        ("equal", False, True),
        ("cannot tell", False, True),
        ("worse", True, False),
    ],
)
def test_only_an_artefact_that_plays_worse_is_at_fault(
    made: list[Artefact], likeness: str, is_improved: bool, is_fine: bool
) -> None:
    by_name = rows(f16="equal", q8="equal", q4="equal")
    found = verdict_of(by_name, made[1], held_out(likeness, is_improved))
    assert found.comparison == "gguf f16 on held-out cases: s; compared with the base, b"
    assert found.is_fine is is_fine
    assert found.problem == ("" if is_fine else "gguf f16 on held-out cases: s")


def test_without_held_out_cases_validation_is_compared_and_without_both_nothing(
    made: list[Artefact],
) -> None:
    by_name = rows(f16="worse", q8="equal", q4="equal")
    assert verdict_of(by_name, made[1], None).problem == "gguf f16 on validation cases: s"
    assert "no case was played" in verdict_of(by_name, made[0], None).comparison


def test_a_server_that_plays_worse_is_named(made: list[Artefact]) -> None:
    by_name = rows(f16="equal", q8="equal", q4="equal")
    played = {"likeness": "worse", "sentence": "worse by 0.4"}
    by_name["merged"] = complete(ArtefactRow, {"servers": {"vLLM": played}})
    found = verdict_of(by_name, made[1], held_out("equal", True))
    assert not found.is_fine
    assert found.problem == "merged on vLLM, validation cases: worse by 0.4"


def test_where_many_cases_were_not_scored_the_shipment_is_not_fine(made: list[Artefact]) -> None:
    by_name = rows(f16="equal", q8="equal", q4="equal")
    missing = "20 of 40 cases could not be scored on both sides"
    found = held_out("cannot tell", True, missing)
    assert verdict_of(by_name, made[1], found).problem == f"gguf f16 on held-out cases: {missing}"
    played = {"likeness": "cannot tell", "sentence": "s", "missing": missing}
    by_name[made[1].name] = complete(ArtefactRow, {"validation": played})
    assert not verdict_of(by_name, made[1], None).is_fine


def test_the_headline_tells_what_was_written() -> None:
    good, bad = ShipVerdict("like the checkpoint"), ShipVerdict("worse", "worse by 0.4")
    assert headline(good, "/x/porter", 3, is_trial=False) == (
        "shipped", "3 forms of the model written to /x/porter, each verified"
    )  # fmt: skip
    assert headline(good, "", 1, is_trial=True)[0] == "tried"
    assert headline(bad, "/x/porter", 3, is_trial=False)[0] == "not as good"
    refused = ShipVerdict(problem="merged lost the training", is_refused=True)
    assert headline(refused, "", 0, is_trial=False)[0] == "refused"
