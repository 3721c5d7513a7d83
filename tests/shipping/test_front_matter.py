"""Metadata of model cards is read back as it was written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparring.shipping.front_matter import read_front_matter, with_front_matter

TEXT = st.text(st.characters(categories=("L", "N", "P")), max_size=20)
VALUES = st.dictionaries(
    st.text("abc_", min_size=1, max_size=5), st.one_of(TEXT, st.lists(TEXT, max_size=3)), min_size=1
)


@given(VALUES)
def test_what_is_written_is_read_again(metadata: dict[str, object]) -> None:
    assert read_front_matter(with_front_matter(metadata, "# text\n")) == metadata


def test_a_card_without_metadata_or_with_broken_metadata_has_none() -> None:
    for text in ("# text", "---\nopen: [", "---\na: [1\n---\n", "---\n- list\n---\n", ""):
        assert read_front_matter(text) == {}
