from __future__ import annotations

import pytest
from pydantic import ValidationError

from sparring.contracts.training import TrainSettings
from sparring.worker.from_python import explained


def what_is_wrong(**settings) -> str:
    with pytest.raises(ValidationError) as caught:
        TrainSettings(**settings)
    return explained(caught.value, TrainSettings)


def test_a_name_that_is_not_in_a_table_is_answered_with_those_that_are():
    told = what_is_wrong(warm_start={"path": "demos.jsonl"})
    assert "warm_start.path: no such setting; there are source, num_train_epochs" in told
    assert "warm_start.source: Field required" in told


def test_a_name_that_is_no_setting_is_answered_with_the_settings():
    told = what_is_wrong(learning_rat=1)
    assert told.startswith("learning_rat: no such setting; there are ")
    assert "learning_rate" in told
