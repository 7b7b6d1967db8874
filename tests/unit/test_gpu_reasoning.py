"""What is concluded from cards, from the kernel's messages about them, and from links."""

from typing import Any

import pytest
from msgspec.structs import replace

from hangdoc.diagnosis import Finding, Job
from hangdoc.reasoning.engine import diagnose
from hangdoc.reasoning.evidence.kernel import meaning_of
from hangdoc.reasoning.ranks.card import use_of
from hangdoc.snapshot import (
    Card,
    CardEvent,
    CardEvents,
    Cards,
    Host,
    LinkPort,
    Links,
    Process,
    Runtime,
    Snapshot,
    Unavailable,
)
from tests.rules.hd705.case import port
from tests.rules.shapes import card, gpu_rank, steps
from tests.unit.builders import helper, rank, snapshot, train

BUS = "0000:10:00.0"
"""Of card 0, on which pid 100 computes: rank 0."""


def xid(number: int, bus_id: str = BUS, ago: float = 60.0, **more: Any) -> CardEvent:
    return CardEvent(kind=more.pop("kind", "Xid"), number=number, bus_id=bus_id, seconds_ago=ago, **more)


def job(*processes: Process, cards: Any = None, events: tuple[CardEvent, ...] = (), **more: Any) -> Job:
    """The diagnosis of one run, by default of two ranks that spin in the driver, each with a card of its own."""
    taken = snapshot(
        *(processes or (gpu_rank(0), gpu_rank(1))),
        cards=cards if cards is not None else Cards(cards=(card(0, 100), card(1, 101))),
        card_events=CardEvents(events=events),
        **more,
    )
    diagnosis = diagnose(taken)
    assert not [problem for problem in diagnosis.problems if "please report" in problem]
    (one,) = diagnosis.jobs
    return one


def of(code: str, one: Job) -> list[Finding]:
    return [finding for finding in one.findings if finding.code == code]


def healthy() -> tuple[Process, ...]:
    return tuple(rank(number, train(12), cpu=0.9, progress=steps(10, 15)) for number in (0, 1))


# --- which card a rank has ------------------------------------------------------------------------------------------


def test_a_rank_has_the_card_on_which_its_process_computes() -> None:
    ranks = job(cards=Cards(cards=(card(0, 101, 900), card(1, 100)))).ranks
    assert [one.gpu.index for one in ranks if one.gpu is not None] == [1, 0]


def test_of_several_cards_it_has_that_of_its_local_rank() -> None:
    """A common mistake: every rank makes a context on card 0."""
    ranks = job(cards=Cards(cards=(card(0, 100, 101), card(1, 101)))).ranks
    assert [one.gpu.index for one in ranks if one.gpu is not None] == [0, 1]


def test_of_several_cards_none_of_which_is_that_of_its_local_rank_it_has_none() -> None:
    ranks = job(cards=Cards(cards=(card(0, 100), card(2, 101), card(3, 101)))).ranks
    assert [one.gpu is None for one in ranks] == [False, True]


@pytest.mark.parametrize("cards", [Cards(cards=(card(0), card(1))), Unavailable(reason="no NVML")])
def test_without_processes_no_rank_has_a_card(cards: Any) -> None:
    assert [one.gpu for one in job(cards=cards).ranks] == [None, None]


def test_what_the_document_says_of_a_card() -> None:
    broken = card(0, 100, uncorrected_errors=2, remapping_failed=True, throttle=("hw_thermal",))
    gpu = job(cards=Cards(cards=(broken,)), events=(xid(13), xid(13), xid(79, bus_id="0000:99:00.0"))).ranks[0].gpu
    assert gpu is not None
    assert (gpu.index, gpu.utilisation, gpu.memory_activity, gpu.power_watts) == (0, 100, 0, 130.6)
    assert (gpu.throttle, gpu.errors) == (("hw_thermal",), ("Xid 13", "2 ECC", "remapping failed"))


# --- what a card does -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("percent", "memory", "watts", "use"),
    [
        (0, 0, 73.4, "idle"),
        (100, 0, 130.6, "waits"),
        (100, 0, 128.2, "waits"),
        (100, 1, 145.0, "waits"),  # a tiny model: so it is only called waiting, or doing very little
        (100, 31, 698.0, "works"),
        (99, 30, 697.5, "works"),
        (60, 0, 120.0, "works"),
    ],
)
def test_the_figures_of_a_real_card(percent: int, memory: int, watts: float, use: str) -> None:
    """An H100 80GB HBM3 with driver 580.159.04 and a limit of 700 W."""
    assert (
        used(Card(index=0, utilisation=percent, memory_activity=memory, power_watts=watts, power_limit_watts=700.0))
        == use
    )


@pytest.mark.parametrize("missing", ["utilisation", "memory_activity", "power_watts", "power_limit_watts"])
def test_without_one_of_them_nothing_is_concluded(missing: str) -> None:
    assert used(replace(card(0), **{missing: None})) is None


def test_an_old_answer_shows_nothing() -> None:
    assert used(card(0), age=60.0) is None


def used(one: Card, age: float = 0.0) -> str | None:
    host = Host(
        name="h",
        taken_at="",
        window_seconds=1.0,
        elapsed_seconds=1.0,
        processes=(),
        cards=Cards(cards=(one,), age_seconds=age),
    )
    return use_of(host, one)


def test_cards_that_wait_are_evidence_of_a_blockage() -> None:
    one = job(cards=Cards(cards=(card(0, 100), card(1, 101, utilisation=0, power_watts=73.4))))
    texts = [(line.rank, line.text) for line in one.findings[0].evidence if line.probe == "card"]
    assert texts == [
        (0, "card 0 at 100%, memory 0%, 131 of 700 W: it waits in a kernel, or does very little work"),
        (1, "card 1 at 0%, memory 0%, 73 of 700 W: no kernel runs on it"),
    ]


def test_cards_that_are_all_idle_are_none() -> None:
    idle = {"utilisation": 0, "power_watts": 73.4}
    one = job(cards=Cards(cards=(card(0, 100, **idle), card(1, 101, **idle))))
    assert all(line.probe != "card" for finding in one.findings for line in finding.evidence)


# --- HD704 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [46, 48, 62, 79, 94, 95, 109, 119, 120, 140, 158, 167])
def test_an_error_that_ends_kernels_is_the_cause_of_a_wait(number: int) -> None:
    one = job(events=(xid(number),))
    (finding,) = of("HD704", one)
    assert (finding.severity, finding.culprits, finding.victims) == ("error", (0,), (1,))
    assert one.verdict == "hung" and one.findings[0].code == "HD704"


def test_in_a_run_that_makes_progress_it_is_a_warning() -> None:
    one = job(*healthy(), events=(xid(79),))
    (finding,) = of("HD704", one)
    assert (finding.severity, finding.victims, one.verdict) == ("warning", (), "healthy")


def test_several_cards_with_one_error_are_one_finding() -> None:
    one = job(events=(xid(119), xid(119, bus_id="0000:11:00.0")))
    (finding,) = of("HD704", one)
    assert finding.culprits == (0, 1) and "2 cards (0000:10:00.0, 0000:11:00.0)" in finding.summary


@pytest.mark.parametrize(
    "event",
    [
        xid(43, pid=100),
        xid(45, pid=100),
        xid(63),
        xid(200),
        xid(79, ago=101.0),  # the ranks began 100 s ago
        xid(79, bus_id="0000:99:00.0"),  # no card of this host
    ],
)
def test_what_is_no_fault_of_the_run(event: CardEvent) -> None:
    one = job(events=(event,))
    assert not of("HD704", one) and one.verdict == "unknown"


def test_a_consequence_is_evidence_beside_another_error() -> None:
    (finding,) = of("HD704", job(events=(xid(43, pid=100), xid(79))))
    assert [line.text for line in finding.evidence if line.probe == "kernel log"] == [
        "Xid 79 of 0000:10:00.0 1 min 0 s ago",
        "Xid 43 of 0000:10:00.0 1 min 0 s ago",
    ]


def test_an_invalid_address_is_an_error_of_the_rank_whose_process_is_named() -> None:
    one = job(events=(xid(31, pid=100, text="MMU Fault"),))
    (finding,) = of("HD704", one)
    assert (finding.severity, finding.culprits) == ("error", (0,))
    assert "compute-sanitizer" in finding.remedy
    assert one.verdict == "unknown"  # the rank may still see the error, and end


def test_an_invalid_address_of_a_process_that_is_no_rank_is_none_of_the_run() -> None:
    cards = Cards(cards=(card(0, 100), card(1, 101), card(2, 900, bus_id="0000:99:00.0")))
    assert not of("HD704", job(cards=cards, events=(xid(31, pid=900, bus_id="0000:99:00.0"),)))


@pytest.mark.parametrize("number", [13, 31, 94, 109])
def test_an_error_of_another_process_on_the_same_card_is_none_of_the_run(number: int) -> None:
    """As seen on a real card: a program beside a healthy run used an invalid address."""
    cards = Cards(cards=(card(0, 100, 101, 3060),))
    assert not of("HD704", job(*healthy(), cards=cards, events=(xid(number, pid=3060),)))
    one = job(cards=cards, events=(xid(number, pid=3060),))
    assert not of("HD704", one)
    assert [view.gpu.errors for view in one.ranks if view.gpu is not None] == [(), ()]
    assert of("HD704", job(cards=cards, events=(xid(79, pid=3060),)))  # which ends the kernels of all processes


def test_an_error_of_a_helper_is_one_of_its_rank() -> None:
    worker = helper(700, 101, train(12))
    (finding,) = of("HD704", job(gpu_rank(0), gpu_rank(1), worker, events=(xid(31, pid=700),)))
    assert finding.culprits == (1,)


def test_in_a_container_the_ranks_of_a_card_are_unknown() -> None:
    one = job(cards=Cards(cards=(card(0), card(1))), events=(xid(79),))
    (finding,) = of("HD704", one)
    assert (finding.severity, finding.culprits, one.verdict) == ("warning", (), "unknown")
    assert "which the run may use" in finding.summary


def test_without_nvml_the_process_in_the_message_names_the_rank() -> None:
    unknown = Unavailable(reason="nvidia-ml-py is not installed")
    (finding,) = of("HD704", job(cards=unknown, events=(xid(79, pid=101),)))
    assert (finding.severity, finding.culprits) == ("error", (1,))
    (finding,) = of("HD704", job(cards=unknown, events=(xid(79),)))
    assert (finding.severity, finding.culprits) == ("warning", ())


def test_ranks_on_the_cpu_have_nothing_to_do_with_cards() -> None:
    on_cpu = Runtime(python="3.12", executable="/usr/bin/python3", torch="2.13.0", gpu=False)
    ranks = [replace(gpu_rank(number), runtime=on_cpu) for number in (0, 1)]
    cards = Cards(cards=(card(0, lost=True),), unanswered_seconds=9.0)
    assert not of("HD704", job(*ranks, cards=cards, events=(xid(79),)))


def test_a_lost_card_is_that_of_the_rank_without_another_one() -> None:
    one = job(cards=Cards(cards=(card(0, 100), card(1, lost=True, pids=None))))
    (finding,) = of("HD704", one)
    assert (finding.severity, finding.culprits) == ("error", (1,))
    assert "by exclusion" in finding.summary


def test_a_lost_card_beside_the_cards_of_all_ranks_is_none_of_the_run() -> None:
    assert not of("HD704", job(cards=Cards(cards=(card(0, 100), card(1, 101), card(2, lost=True, pids=None)))))


def test_a_driver_that_does_not_answer() -> None:
    silent = Cards(
        cards=(), unanswered_seconds=5.2, problem="the NVIDIA driver did not answer within 5 s (asked for: nvmlInit)"
    )
    (finding,) = of("HD704", job(cards=silent))
    assert finding.severity == "error" and finding.culprits == (0, 1)
    assert not any("nvidia-smi" in command for command in finding.commands)
    (finding,) = of("HD704", job(*healthy(), cards=silent))
    assert finding.severity == "warning"


def test_memory_errors_count_only_where_ranks_wait() -> None:
    cards = Cards(cards=(card(0, 100, uncorrected_errors=1), card(1, 101)))
    (finding,) = of("HD704", job(cards=cards))
    assert (finding.severity, finding.culprits) == ("warning", (0,))
    assert "1 uncorrected ECC error since the driver was loaded" in finding.evidence[0].text
    assert not of("HD704", job(*healthy(), cards=cards))


@pytest.mark.parametrize(
    ("event", "weight"),
    [
        (xid(144, text="SAW_MVB Nonfatal XC0 i0 Link 0"), "hint"),
        (xid(149, text="NETIR_LINK_EVT Fatal XC0 i0 Link 00"), "link"),
        (xid(20034, kind="SXid", text="Fatal, Link 30 LTSSM Fault Up"), "link"),
        (xid(20009, kind="SXid", text="Non-fatal, Link 28 RX Short Error Rate"), "hint"),
        (xid(154), "hint"),
        (xid(9), "consequence"),
    ],
)
def test_the_weight_of_errors(event: CardEvent, weight: str) -> None:
    assert meaning_of(event).weight == weight


# --- HD705 ----------------------------------------------------------------------------------------------------------


def links(*ports: LinkPort) -> dict[str, Any]:
    return {"links": Links(ports=ports)}


def test_a_port_that_is_down_is_an_error_only_while_its_rank_waits() -> None:
    down = links(port("mlx5_0", "DOWN", "Polling", 100))
    (finding,) = of("HD705", job(**down))
    assert (finding.severity, finding.culprits) == ("error", (0,))
    (finding,) = of("HD705", job(*healthy(), **down))
    assert finding.severity == "warning"


def test_a_port_that_is_down_beside_one_that_is_active_is_none() -> None:
    second = replace(port("mlx5_0", "DOWN", "Disabled", 100), port=2)
    assert not of("HD705", job(**links(port("mlx5_0", "ACTIVE", "LinkUp", 100), second)))


def test_errors_that_grow_are_a_warning() -> None:
    (finding,) = of("HD705", job(**links(port("mlx5_0", "ACTIVE", "LinkUp", 100, local_ack_timeout_err=4))))
    assert finding.severity == "warning" and "local_ack_timeout_err +4" in finding.summary
    assert not of("HD705", job(**links(port("mlx5_0", "ACTIVE", "LinkUp", 900, local_ack_timeout_err=4))))


def test_a_card_with_fewer_links_than_the_others_of_its_host() -> None:
    whole = [card(index, 100 + index, links_active=18) for index in (0, 1, 2)]
    poor = card(3, 103, links_active=17, links_inactive=(4,))
    ranks = [gpu_rank(number, world=4) for number in range(4)]
    (finding,) = of("HD705", job(*ranks, cards=Cards(cards=(*whole, poor))))
    assert (finding.severity, finding.culprits) == ("warning", (3,))
    assert "card 3 has 17 active NVLinks, the others of h0 18" in finding.summary


def test_cards_of_which_each_has_other_links_show_nothing() -> None:
    assert not of("HD705", job(cards=Cards(cards=(card(0, 100, links_active=12), card(1, 101, links_active=18)))))


def test_a_fatal_error_of_a_switch_concerns_all_ranks_of_the_host() -> None:
    fatal = xid(20034, bus_id="0000:05:00.0", kind="SXid", text="Fatal, Link 30 LTSSM Fault Up")
    (finding,) = of("HD705", job(events=(fatal,)))
    assert (finding.severity, finding.culprits) == ("error", (0, 1))
    harmless = replace(fatal, text="Non-fatal, Link 30 LTSSM Fault Up")
    assert not of("HD705", job(events=(harmless,)))


# --- HD601 ----------------------------------------------------------------------------------------------------------


def slow(throttle: tuple[str, ...], others: tuple[str, ...] = ()) -> str:
    ranks = (
        rank(0, train(15), cpu=0.2, progress=steps(10, 15)),
        rank(1, train(12), cpu=0.95, progress=steps(10, 15)),
    )
    cards = (card(0, 100, throttle=others), card(1, 101, throttle=throttle, sm_clock_mhz=1005))
    (finding,) = of("HD601", job(*ranks, cards=Cards(cards=cards)))
    return finding.summary


def test_a_straggler_whose_card_is_too_hot() -> None:
    assert "its card slows itself down (hw_thermal: 1005 MHz, rank 0's 1980)" in slow(("sw_power_cap", "hw_thermal"))


def test_a_power_cap_or_heat_of_all_cards_explains_no_straggler() -> None:
    assert "its card" not in slow(("sw_power_cap",))
    assert "its card" not in slow(("hw_thermal",), others=("sw_thermal",))


def test_a_bundle_keeps_all_of_it() -> None:
    from hangdoc import codec

    taken = snapshot(
        gpu_rank(0),
        cards=Cards(cards=(card(0, 100),), driver="580.159.04"),
        card_events=CardEvents(events=(xid(79),)),
        links=Links(ports=(port("mlx5_0", "DOWN", "Polling", 100, symbol_error=1),)),
    )
    again: Snapshot = codec.decode(codec.encode(taken))
    assert again.hosts[0].cards == taken.hosts[0].cards
    assert again.hosts[0].card_events == taken.hosts[0].card_events
    assert again.hosts[0].links == taken.hosts[0].links
