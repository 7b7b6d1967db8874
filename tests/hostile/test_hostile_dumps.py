"""A directory of dumps that somebody else has filled: what is in it can only give a wrong report."""

import os
import pickle
import socket
import struct
from pathlib import Path

import pytest

from hangdoc import codec
from hangdoc.diagnosis import Diagnosis
from hangdoc.dumps.dump_snapshot import read_dumps
from hangdoc.reasoning.engine import diagnose
from hangdoc.render.console import record_console
from hangdoc.render.text import report
from tests.hostile.fuzz.bounds import bounded
from tests.live.needs import needs
from tests.unit.dumps import PREFIX, Rank, write


def good(folder: Path) -> Path:
    """The dump of rank 0, which waits for rank 1."""
    return write(folder, [Rank(0).group([0, 1]).many("all_reduce", 1, 9).call("all_reduce", 2.0)], at=603.0)


def answer(folder: Path) -> Diagnosis:
    with bounded():
        snapshot = read_dumps(folder, 60.0)
        found = diagnose(codec.decode(codec.encode(snapshot)))
    console = record_console(100)
    report(found, console)
    text = console.export_text()
    assert all(char.isprintable() or char == "\n" for char in text)
    return found


def only_rank_0(found: Diagnosis) -> None:
    (job,) = found.jobs
    assert [rank.rank for rank in job.ranks] == [0]
    assert [one.rank for one in job.unseen] == [1]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere = write(tmp_path / "elsewhere", [Rank(1).group([0, 1]).many("all_reduce", 1, 9)], at=603.0)
    folder = good(tmp_path / "d")
    (folder / f"{PREFIX}1").symlink_to(elsewhere / f"{PREFIX}1")
    (folder / "node2").symlink_to(elsewhere)
    (folder / f"{PREFIX}2").symlink_to("/dev/zero")
    (folder / f"{PREFIX}3").symlink_to("/proc/self/mem")
    (folder / f"{PREFIX}4").symlink_to(f"{PREFIX}4")
    found = answer(folder)
    only_rank_0(found)
    assert any("5 files skipped (no regular file)" in problem for problem in found.problems)


def test_a_folder_of_links_to_folders_is_empty(tmp_path: Path) -> None:
    good(tmp_path / "elsewhere")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "node0").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "d" / "node1").symlink_to(tmp_path / "d")
    assert answer(tmp_path / "d").jobs == ()


def test_pipes_sockets_and_folders_are_not_opened(tmp_path: Path) -> None:
    folder = good(tmp_path / "d")
    os.mkfifo(folder / f"{PREFIX}1")
    (folder / f"{PREFIX}2").mkdir()
    listens = socket.socket(socket.AF_UNIX)
    try:
        os.chdir(folder)  # the path of a socket is short
        listens.bind(f"{PREFIX}3")
        only_rank_0(answer(folder))
    finally:
        os.chdir("/")
        listens.close()


def test_a_device_is_not_opened(tmp_path: Path) -> None:
    needs("root")
    folder = good(tmp_path / "d")
    try:
        os.mknod(folder / f"{PREFIX}1", 0o666 | 0o020000, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        pytest.skip("no device can be made here")
    only_rank_0(answer(folder))


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    folder = good(tmp_path / "d")
    for rank, start in ((1, b"\x80\x02}"), (2, b"{"), (3, b"x")):
        with open(folder / f"{PREFIX}{rank}", "wb") as file:
            file.write(start)
            file.truncate(1 << 40)
    found = answer(folder)
    (job,) = found.jobs
    assert [(rank.rank, rank.label) for rank in job.ranks] == [(0, "blocked"), (1, None)]
    assert f"{PREFIX}1 has more than 64 MiB" in found.problems
    assert any("2 files skipped" in problem or "1 file skipped" in problem for problem in found.problems)


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    folder = good(tmp_path / "d")
    (folder / f"{PREFIX}1").write_bytes(b"\x80\x02}.")
    (folder / f"{PREFIX}1").chmod(0)
    if os.geteuid() != 0:
        only_rank_0(answer(folder))


@pytest.mark.parametrize(
    "name",
    [b"a\nb\x1b[2J_1", b"\xff\xfe_2", "\u202eabc_3".encode(), b"<script>_4", b"x" * 240 + b"_5", b"[bold]_6", b"--save_7",
     b"%s%n_8", b"a\x00"[:1] + b"\t_9"],
    ids=repr,
)  # fmt: skip
def test_names_are_clean(tmp_path: Path, name: bytes) -> None:
    folder = good(tmp_path / "d")
    Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(b"no dump")
    only_rank_0(answer(folder))


def test_texts_in_a_dump_are_clean(tmp_path: Path) -> None:
    dump = Rank(0).group([0, 1]).many("all_reduce", 1, 9).call("all_reduce", 2.0).dump()
    odd = "\x1b[2J\u202e<b>\n\x00[red]" * 50
    for entry in dump["entries"]:
        entry["profiling_name"] = f"nccl:{odd}"
        entry["process_group"] = (odd, "default_pg")
        entry["input_dtypes"] = [odd]
        entry["frames"] = [{"name": odd, "filename": odd, "line": -5}]
    dump["pg_config"] = {odd: {"name": odd, "desc": odd, "ranks": odd}}
    (tmp_path / f"{PREFIX}0").write_bytes(pickle.dumps(dump, 2))
    (job,) = answer(tmp_path).jobs
    assert [rank.rank for rank in job.ranks] == [0]


@pytest.mark.parametrize(
    "ranks", [f"[{'9999999, ' * 100_000}1]", "[" + "1," * 1_000_000 + "1]", "[-1]", "[1e9]", "[" * 100_000, "[99999999999]"],
    ids=["large", "many", "negative", "float", "brackets", "huge"],
)  # fmt: skip
def test_members_that_are_none(tmp_path: Path, ranks: str) -> None:
    dump = Rank(0).group([0, 1]).call("all_reduce", 2.0).dump()
    dump["pg_config"]["0"]["ranks"] = ranks
    (tmp_path / f"{PREFIX}0").write_bytes(pickle.dumps(dump, 2))
    (job,) = answer(tmp_path).jobs
    assert [rank.rank for rank in job.ranks] == [0]


@pytest.mark.parametrize(
    "number", [-1, 1 << 62, 1 << 63, 1 << 200, 1e308, float("nan"), "9" * 400, None, True, "x"], ids=repr
)
@pytest.mark.parametrize(
    "field", ["time_created_ns", "collective_seq_id", "record_id", "timeout_ms", "pg_id", "p2p_seq_id"]
)
def test_numbers_that_are_none(tmp_path: Path, field: str, number: object) -> None:
    dump = Rank(0).group([0, 1]).many("all_reduce", 1, 3).call("send 0->1", 2.0).call("all_reduce", 2.0).dump()
    dump["entries"][2][field] = number
    (tmp_path / f"{PREFIX}0").write_bytes(pickle.dumps(dump, 2))
    for job in answer(tmp_path).jobs:
        assert [rank.rank for rank in job.ranks] == [0]


def test_a_name_claims_a_rank_far_away(tmp_path: Path) -> None:
    """A number in a name may be that of a process. A world of a million ranks would have as many unseen ones."""
    folder = good(tmp_path / "d")
    dump = Rank(0).group([0, 1]).call("all_reduce", 2.0).dump()
    (folder / f"{PREFIX}999999").write_bytes(pickle.dumps(dump, 2))
    found = answer(folder)
    only_rank_0(found)
    assert any("is no rank of the default group" in problem for problem in found.problems)
    del dump["pg_config"]["0"]
    (folder / f"{PREFIX}999999").write_bytes(pickle.dumps(dump, 2))
    assert sum(len(job.unseen) for job in answer(folder).jobs) < 10


def test_many_files_that_are_no_dumps(tmp_path: Path) -> None:
    folder = good(tmp_path / "d")
    for number in range(1, 3000):
        (folder / f"core.{number}").write_bytes(struct.pack("<I", number) * 10)
    found = answer(folder)
    only_rank_0(found)
    assert max(map(len, found.problems)) < 300


def test_many_bombs(tmp_path: Path) -> None:
    folder = good(tmp_path / "d")
    for number in range(1, 4):
        (folder / f"{PREFIX}{number}").write_bytes(b"\x80\x02" + b"]" * 4_000_000 + b".")
    with bounded(seconds=12.0):
        snapshot = read_dumps(folder, 60.0)
    (job,) = diagnose(snapshot).jobs
    assert [(rank.rank, rank.label) for rank in job.ranks] == [(0, "blocked"), (1, None)]
