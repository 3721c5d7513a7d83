"""An index entry survives packing, and an id is found only where an entry begins."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.rollouts import Ending
from sparring.run_folder.rollout_shards import (
    ENTRY_BYTES,
    find_digest,
    id_digest,
    line_places,
    pack_entry,
    unpack_entries,
)
from tests.rollouts import rollout


@given(
    st.sampled_from(sorted(Ending)),
    st.none() | st.sampled_from([0.0, 0.25, 1.0]),
    st.integers(0, 2**40),
    st.integers(1, 2**31),
)
def test_an_entry_survives_packing(
    ending: Ending, reward: float | None, offset: int, length: int
) -> None:
    made = rollout("answer", id="case", ending=ending, reward=reward)
    block = pack_entry(made, 1.5, offset=offset, length=length)
    assert len(block) == ENTRY_BYTES == 40
    (entry,) = unpack_entries(block + b"torn")
    assert (entry.ending, entry.reward, entry.seconds) == (ending, reward, 1.5)
    assert entry.id_digest == id_digest(made.id)
    assert line_places(block) == [(offset, offset + length)]


def test_an_id_is_found_where_an_entry_begins_and_nowhere_else() -> None:
    wanted, other = rollout("a", id="wanted"), rollout("a", id="other")
    decoy = pack_entry(other, 0.0, offset=id_digest(wanted.id), length=1)
    block = decoy + pack_entry(wanted, 0.0, offset=1, length=1)
    assert find_digest(block, wanted.id) == 1
    assert find_digest(decoy, wanted.id) is None
