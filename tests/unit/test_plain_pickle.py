"""The reader of pickles against `pickle.dumps`."""

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangdoc.plain_pickle import unpickle
from hangdoc.untrusted import UntrustedError

MOST = 100_000
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXTS,
    lambda inner: (
        st.lists(inner, max_size=8)
        | st.dictionaries(_TEXTS, inner, max_size=8)
        | st.lists(inner, max_size=5).map(tuple)
    ),
    max_leaves=60,
)
PROTOCOLS = st.integers(2, pickle.HIGHEST_PROTOCOL)


@given(_PLAIN, PROTOCOLS)
@settings(deadline=None)
def test_plain_values_come_back(value: Any, protocol: int) -> None:
    raw = pickle.dumps(value, protocol)
    found = unpickle(raw, MOST)
    assert found.whole
    assert found.value == value
    assert repr(found.value) == repr(value)  # True is no 1, and a tuple no list


@given(st.lists(st.dictionaries(_TEXTS, _PLAIN, max_size=4), min_size=1, max_size=8), PROTOCOLS, st.data())
@settings(deadline=None, max_examples=40)
def test_a_value_that_is_used_often_comes_back(values: list[Any], protocol: int, data: st.DataObject) -> None:
    """As the frames in a dump, of which each is written once."""
    shared = [[data.draw(st.sampled_from(values)) for _ in range(4)] for _ in range(4)]
    assert unpickle(pickle.dumps(shared, protocol), MOST).value == shared


@given(_PLAIN, PROTOCOLS, st.data())
@settings(deadline=None)
def test_a_truncated_pickle_is_refused(value: Any, protocol: int, data: st.DataObject) -> None:
    raw = pickle.dumps(value, protocol)
    cut = raw[: data.draw(st.integers(0, len(raw) - 1))]
    with pytest.raises(UntrustedError, match=r"truncated|no pickle"):
        unpickle(cut, MOST)


@given(st.lists(st.dictionaries(_TEXTS, st.integers(), max_size=5), max_size=30), PROTOCOLS, st.data())
@settings(deadline=None)
def test_the_beginning_of_a_truncated_list_can_be_read(
    entries: list[dict[str, int]], protocol: int, data: st.DataObject
) -> None:
    raw = pickle.dumps({"version": "2.10", "entries": entries}, protocol)
    cut = raw[: data.draw(st.integers(2, len(raw) - 1))]
    try:
        found = unpickle(cut, MOST, partly=True)
    except UntrustedError as error:
        assert "truncated" in str(error)
        return
    assert not found.whole
    read = found.value.get("entries", [])
    assert read == entries[: len(read)]


@given(st.binary(max_size=400))
@settings(deadline=None)
def test_any_bytes_give_a_plain_value_or_one_error(raw: bytes) -> None:
    for partly in (False, True):
        try:
            unpickle(b"\x80\x04" + raw, 1_000, partly)
        except UntrustedError as error:
            assert str(error)


def test_bytes_that_are_no_text_are_replaced() -> None:
    """File names need not be UTF-8."""
    assert unpickle(b"\x80\x02X\x02\x00\x00\x00\xffa.", MOST).value == "\ufffda"


@pytest.mark.parametrize(
    "value", [{1: 2}, {None: 1}, {(1,): 2}, b"x", bytearray(b"x"), {1}, frozenset({"x"}), 1j, range(3), len, 1 << 3000],
    ids=repr,
)  # fmt: skip
def test_other_values_are_refused(value: Any) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(UntrustedError):
            unpickle(pickle.dumps(value, protocol), MOST)
