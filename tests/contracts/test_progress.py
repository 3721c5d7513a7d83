"""What a heartbeat says is given once, whatever attempts it comes from."""

from sparring.contracts.progress import NewLines


def beat(step, **besides):
    return {"pid": 1, "step": step, "steps": 9, "said": [], "metrics": {"loss": 0.5}, **besides}


def test_each_step_and_each_validation_is_a_line_of_its_own_and_comes_once():
    lines = NewLines()
    assert lines(beat(0, validated_at=0, validation=0.25)) == ["validation at step 0: reward 0.250"]
    assert lines(beat(1, validated_at=0, validation=0.25)) == ["step 1/9 · loss +0.500"]
    assert lines(beat(1, validated_at=0, validation=0.25)) == []
    assert lines(beat(1, validated_at=1, validation=None)) == [
        "validation at step 1: reward unknown: no rollout could be scored"
    ]


def test_an_attempt_that_goes_on_says_nothing_twice_and_nothing_empty():
    lines = NewLines()
    lines(beat(4, validated_at=4, validation=0.5))
    assert lines(beat(2, pid=2, said=["goes on"], metrics={})) == ["goes on"]
    assert lines(beat(3, pid=2, said=["goes on"])) == ["step 3/9 · loss +0.500"]
