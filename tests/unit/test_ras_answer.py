"""Answers of NCCL's RAS: of a real card (NCCL 2.28.9), as NCCL's documentation shows them, and arbitrary ones."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangdoc.observe.gpu import ras_answer
from hangdoc.observe.gpu.ras_answer import RasAnswerError, parse_answer
from hangdoc.observe.gpu.ras_counts import is_uniform, with_earlier
from hangdoc.snapshot import RasAnswer, RasCommunicator
from tests.unit.ras_answers import Communicator, Member, json_answer, text_answer

CARD = Path(__file__).with_name("ras_of_a_card")
NODE = "172.16.64.210"


def one(answer: RasAnswer) -> RasCommunicator:
    (communicator,) = answer.communicators
    return communicator


def counts(communicator: RasCommunicator) -> dict[int, tuple[int | None, ...]]:
    return {rank.rank: rank.counts for rank in communicator.ranks}


def read(name: str) -> RasAnswer:
    return parse_answer((CARD / f"{name}.txt").read_bytes())


# --- real answers ------------------------------------------------------------------------------------------------------


def test_a_healthy_run_of_a_card() -> None:
    answer = read("healthy.json")
    assert (answer.nccl_version, answer.form, one(answer).hash) == ("2.28.9", "json", "e76fc0dc89e2e10b")
    assert counts(one(answer)) == {0: (4, 0, 1, 0, 151), 1: (4, 0, 1, 0, 151)}
    assert [(rank.host, rank.pid) for rank in one(answer).ranks] == [("127.0.0.1", 1592), ("127.0.0.1", 1593)]
    assert is_uniform(one(answer))
    text = read("healthy.text")
    assert (text.form, text.communicators, text.left_out) == ("text", (), 1)


def test_a_missing_rank_of_a_card() -> None:
    """Its JSON lacks a comma."""
    for name in ("sizes.json", "sizes.text"):
        communicator = one(read(name))
        (present,), (missing,) = communicator.ranks, communicator.missing
        assert (present.rank, present.pid, present.async_error) == (1, 1599, 6)
        assert (missing.rank, missing.pid, missing.host) == (0, 1598, "127.0.0.1")
        assert missing.unresponsive
        assert not missing.dead
        assert communicator.size == 2


@pytest.mark.parametrize("case", ["timeout", "fsdp", "order"])
def test_both_forms_of_a_card_have_the_same_counts(case: str) -> None:
    whole, text = read(f"{case}.json"), read(f"{case}.text")
    assert len(whole.communicators) == len(text.communicators)
    for left, right in zip(
        sorted(whole.communicators, key=lambda c: c.hash), sorted(text.communicators, key=lambda c: c.hash), strict=True
    ):
        assert (left.hash, left.size) == (right.hash, right.size)
        assert not is_uniform(left)
        for mine, theirs in zip(left.ranks, right.ranks, strict=True):
            assert (mine.rank, mine.host, mine.pid, mine.cuda_device) == (
                theirs.rank, theirs.host, theirs.pid, theirs.cuda_device,
            )  # fmt: skip
            known = [(a, b) for a, b in zip(mine.counts, theirs.counts, strict=True) if b is not None]
            assert known
            assert all(a == b for a, b in known)


def test_the_forms_that_the_tests_make_are_those_of_the_card() -> None:
    """Line by line, behind the table, which the tests simplify."""
    members = tuple(Member(number, pid, (0, 0, 0, 0, count)) for number, pid, count in ((0, 1590, 22), (1, 1591, 21)))
    made = Communicator(0x8909521695399037, members)
    real = (CARD / "timeout.text.txt").read_text()
    assert real.partition("Errors\n=")[2] == text_answer([made], (2, 28, 9)).decode().partition("Errors\n=")[2]
    there = Member(1, 1599, (0, 0, 0, 0, 11), async_error=6)
    made = Communicator(0x986C226869D6A3C4, (Member(0, 1598, missing="unresponsive"), there))
    real = (CARD / "sizes.text.txt").read_text()
    assert real.partition("Errors\n=")[2] == text_answer([made], (2, 28, 9)).decode().partition("Errors\n=")[2]
    strip = "".join
    real = strip((CARD / "sizes.json.txt").read_text().split())
    own = strip(json_answer([made], (2, 28, 9)).decode().split())
    assert real.partition('"size"')[2].partition('"ras"')[0] == own.partition('"size"')[2].partition('"ras"')[0]


# --- documented answers ------------------------------------------------------------------------------------------------


def test_text_of_2_24_counts_all_collectives_together() -> None:
    late = (0, 2, 3, 4, 5, 7)
    members = tuple(
        Member(number, 483072 + number, (0, 0, 0, 0, 6649 + (number not in late)), host=NODE, gpu=number % 8)
        for number in range(32)
    )
    communicator = one(parse_answer(text_answer([Communicator(0x27A079B828FF1A75, members)], (2, 24, 3))))
    assert {rank.rank for rank in communicator.ranks if rank.launched == 6649} == set(late)
    assert {rank.rank for rank in communicator.ranks if rank.launched == 6650} == set(range(32)) - set(late)
    named = {rank.rank: (rank.pid, rank.host) for rank in communicator.ranks if rank.pid is not None}
    assert named == {number: (483072 + number, NODE) for number in late}, "the others are only counted"
    assert all(rank.counts == () for rank in communicator.ranks)
    assert not is_uniform(communicator)


@pytest.mark.parametrize("version", [(2, 24, 3), (2, 25, 1), (2, 26, 2), (2, 28, 3), (2, 30, 7)])
def test_text_with_ranks_that_leave(version: tuple[int, int, int]) -> None:
    members = tuple(
        Member(number, 100 + number, missing="left")
        if number > 5
        else Member(number, 100 + number, finalize=number in (4, 5))
        for number in range(32)
    )
    communicator = one(parse_answer(text_answer([Communicator(1, members)], version)))
    assert [(rank.rank, rank.finalizing) for rank in communicator.ranks] == [(n, n in (4, 5)) for n in range(6)]
    assert all(not rank.unresponsive for rank in communicator.missing)


def test_text_with_one_rank_that_has_left() -> None:
    for version in ((2, 24, 3), (2, 26, 2)):
        members = (Member(0, 10), Member(1, 11), Member(2, 12, missing="left"))
        communicator = one(parse_answer(text_answer([Communicator(1, members)], version)))
        assert [(rank.rank, rank.unresponsive) for rank in communicator.missing] == [(2, False)]


@pytest.mark.parametrize("version", [(2, 24, 3), (2, 26, 2), (2, 30, 7)])
def test_text_with_a_stopped_and_then_a_dead_process(version: tuple[int, int, int]) -> None:
    for fate in ("unresponsive", "dead"):
        members = tuple(Member(n, 3487979 + n, host=NODE, missing=fate if n == 5 else "") for n in range(8))
        (missing,) = one(parse_answer(text_answer([Communicator(2, members)], version))).missing
        assert (missing.rank, missing.unresponsive) == (5, True)
        if version > (2, 26, 0):
            assert (missing.pid, missing.host, missing.dead) == (3487984, NODE, fate == "dead")


def test_cards_by_another_number_and_errors() -> None:
    members = (
        Member(0, 10, async_error=1, gpu=0, nvml=3),
        Member(1, 11, async_error=9),
        Member(2, 12, async_error=9),
        Member(3, 13),
    )
    communicator = one(parse_answer(text_answer([Communicator(3, members)])))
    assert [(rank.rank, rank.async_error) for rank in communicator.ranks] == [(0, 1), (1, -1), (2, -1)]
    assert (communicator.ranks[0].cuda_device, communicator.ranks[0].nvml_device) == (0, 3)


def test_json_of_several_communicators_and_unknown_fields() -> None:
    pair = (Member(0, 10205, (0, 0, 0, 0, 10), gpu=2), Member(1, 10207, (0, 0, 0, 0, 3), gpu=3))
    rest = tuple(Member(number, 10204 + number, (0, 0, 0, 0, 1)) for number in range(4))
    raw = json_answer([Communicator(0x4E0104C2022FA2F9, pair), Communicator(0xD0D47B5885B3B54B, rest)], (2, 31, 0))
    raw = raw.replace(b'"pid"', b'"uid": [0, {"name": null}], "pid"').replace(
        b'"Broadcast"', b'"SendRecv": 5, "Broadcast"'
    )
    answer = parse_answer(raw)
    assert [is_uniform(communicator) for communicator in answer.communicators] == [False, True]
    assert counts(answer.communicators[0]) == {0: (0, 0, 0, 0, 10), 1: (0, 0, 0, 0, 3)}


@pytest.mark.parametrize("version", [(2, 28, 7), (2, 28, 9), (2, 29, 2)])
def test_json_with_missing_ranks(version: tuple[int, int, int]) -> None:
    members = (
        Member(0, 10018),
        Member(1, 10017, missing="unresponsive"),
        Member(2, -1, host="unknown", missing="left"),
    )
    communicator = one(parse_answer(json_answer([Communicator(4, members)], version)))
    assert [(rank.pid, rank.host, rank.unresponsive) for rank in communicator.missing] == [
        (10017, "127.0.0.1", True), (None, None, False),
    ]  # fmt: skip


def test_no_communicator() -> None:
    assert parse_answer(json_answer([])).communicators == ()
    assert parse_answer(text_answer([])).communicators == ()


def test_counts_of_two_readings() -> None:
    def answer(count: int, hash_: int = 5, pid: int = 1) -> RasAnswer:
        return parse_answer(json_answer([Communicator(hash_, (Member(0, pid, (1, 0, 0, 0, count)),))]))

    joined = with_earlier(answer(9), answer(7), 2.5)
    (rank,) = one(joined).ranks
    assert (rank.counts, rank.counts_before, joined.seconds_between) == ((1, 0, 0, 0, 9), (1, 0, 0, 0, 7), 2.5)
    for other in (answer(7, hash_=6), answer(7, pid=2)):
        assert one(with_earlier(answer(9), other, 2.5)).ranks[0].counts_before == ()


# --- what is no answer -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"{", b"[]", b"null", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"ERROR: Unknown command VERBOSE STATUS\n", b"\xff" * 99,
        b'{"nccl_version": "2.29.2", "communicators": [{}]}', b'{"nccl_version": "2.29.2"}',
        text_answer([Communicator(1, (Member(0, 1), Member(1, 2, (0, 0, 0, 0, 1))))]).partition(b"Warnings")[0],
        json_answer([Communicator(1, (Member(0, 1),))])[:-40],
        json_answer([Communicator(1, (Member(0, 1, (-1, 0, 0, 0, 0)),))]),
        json_answer([Communicator(1, (Member(0, 1, (1 << 64, 0, 0, 0, 0)),))]),
        json_answer([Communicator(1, (Member(-3, 1),))]),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_answer(raw: bytes) -> None:
    with pytest.raises(RasAnswerError, match=r"^its answer "):
        parse_answer(raw)


def test_an_answer_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras_answer, "MAX_BYTES", 1_000)
    with pytest.raises(RasAnswerError, match="more than 1000 bytes"):
        parse_answer(text_answer([]) + b"\n" * 1_000)


# --- properties --------------------------------------------------------------------------------------------------------

_COUNTS = st.tuples(*[st.integers(0, 3)] * 5)
_VERSIONS = st.sampled_from([(2, 24, 3), (2, 25, 1), (2, 26, 5), (2, 28, 3), (2, 28, 9), (2, 30, 7)])


@st.composite
def jobs(draw: st.DrawFn) -> list[Communicator]:
    found = []
    for number in range(draw(st.integers(0, 3))):
        members = tuple(
            Member(
                rank,
                100 + rank,
                draw(_COUNTS),
                missing=draw(st.sampled_from(["", "", "", "", "unresponsive", "dead", "left"])),
                async_error=draw(st.sampled_from([0, 0, 0, 2, 9])),
                finalize=draw(st.booleans()) and draw(st.booleans()),
            )
            for rank in range(draw(st.integers(1, 9)))
        )
        if any(not member.missing for member in members):
            found.append(Communicator(number + 1, members))
    return found


@given(jobs(), _VERSIONS)
def test_text_says_nothing_but_what_is_true(job: list[Communicator], version: tuple[int, int, int]) -> None:
    """A count that text gives is that of the rank, also where it was concluded from what is not named."""
    answer = parse_answer(text_answer(job, version))
    by_hash = {f"{one.hash:016x}": one for one in job}
    assert len(answer.communicators) + answer.left_out == len(job)
    for communicator in answer.communicators:
        made = by_hash[communicator.hash].members
        assert communicator.size == len(made)
        for rank in communicator.ranks:
            truth = made[rank.rank]
            assert not truth.missing
            assert rank.pid in (None, truth.pid)
            assert rank.launched in (None, sum(truth.counts))
            assert all(count in (None, real) for count, real in zip(rank.counts, truth.counts, strict=False))
            assert rank.async_error in (None, truth.async_error if truth.async_error < 7 else -1)
        for missing in communicator.missing:
            truth = made[missing.rank]
            assert truth.missing
            assert missing.unresponsive == (truth.missing != "left")


@given(jobs(), st.sampled_from([(2, 28, 7), (2, 28, 9), (2, 29, 2), (2, 30, 7)]))
def test_json_says_all(job: list[Communicator], version: tuple[int, int, int]) -> None:
    answer = parse_answer(json_answer(job, version))
    for communicator, made in zip(answer.communicators, job, strict=True):
        assert [(rank.rank, rank.pid, rank.counts) for rank in communicator.ranks] == [
            (member.rank, member.pid, member.counts) for member in made.present
        ]
        assert [rank.rank for rank in communicator.missing] == [m.rank for m in made.members if m.missing]


@given(jobs(), _VERSIONS)
def test_of_ranks_that_differ_text_gives_each(job: list[Communicator], version: tuple[int, int, int]) -> None:
    """Unless two groups of equal ranks are not named: in verbose answers each has half of the ranks, so both together all."""
    for communicator in parse_answer(text_answer(job, version)).communicators:
        made = {f"{one.hash:016x}": one for one in job}[communicator.hash]
        for position in range(5):
            values = [member.counts[position] for member in made.present]
            if version >= (2, 26, 0) and len(set(values)) > 1 and len(made.present) == len(made.members):
                halves = sum(
                    2 * values.count(value) >= len(values) > 1 and values.count(value) > 1 for value in set(values)
                )
                known = [rank.counts and rank.counts[position] is not None for rank in communicator.ranks]
                assert halves > 1 or (all(known) and len(known) == len(values))


_LINES = st.sampled_from(
    [line for answer in ("sizes", "timeout", "order") for line in (CARD / f"{answer}.text.txt").read_text().split("\n")]
    + ["  The missing ranks: 1,2,,3", "  9 ranks have launched up to operation 9", "  0 ranks have launched up to operation 1",
       "#0-0 (0) MISMATCH", "  Rank 1,2 has status UNKNOWN", "  Communicator ranks have different status", "DEAD", "Warnings"]
)  # fmt: skip


@settings(max_examples=300)
@given(st.lists(_LINES | st.text(max_size=60), max_size=60))
def test_any_lines_end_in_an_answer_or_one_error(lines: list[str]) -> None:
    for head in ("", "NCCL version 2.28.3 compiled with CUDA 12.8\n"):
        try:
            parse_answer((head + "\n".join(lines)).encode("utf-8", "surrogatepass"))
        except RasAnswerError as error:
            assert str(error).startswith("its answer ")


@settings(max_examples=200)
@given(jobs(), st.data())
def test_a_damaged_answer_ends_in_an_answer_or_one_error(job: list[Communicator], data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from([json_answer(job), json_answer(job, (2, 28, 9)), text_answer(job)])))
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    try:
        parse_answer(bytes(raw))
    except RasAnswerError as error:
        assert str(error).startswith("its answer ")
