"""The JSON of NCCL's RAS service (`rasDumpCommsToJSON` in NCCL's src/ras/client_support.cc). It is the same from 2.28.7 to
2.30.7, but for a comma that 2.28.7 to 2.28.9 forget after `nvml_dev` of a missing rank."""

from typing import Annotated

from msgspec import Meta, Struct, field

from hangdoc.observe.gpu.ras_words import address, hash_text
from hangdoc.regex import regex
from hangdoc.snapshot import RasAnswer, RasCommunicator, RasMissingRank, RasRank
from hangdoc.torch_facts.nccl import COUNTED
from hangdoc.untrusted import UntrustedError, decode

_HASH = regex(r"0x([0-9a-f]{1,16})")
_FORGOTTEN = regex(rb'("nvml_dev":\s{0,8}-?\d{1,9})(\s{1,32}"status")')

_Number = Annotated[int, Meta(ge=-1, le=2**31)]
"""NCCL prints -1 for the pid of a process that it does not know."""
_Rank = Annotated[int, Meta(ge=0, le=2**31)]
_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Word = Annotated[str, Meta(max_length=64)]


class _Status(Struct, frozen=True):
    init_state: _Number
    async_error: _Number
    finalize_called: bool
    destroy_flag: bool
    abort_flag: bool


class _Counts(Struct, frozen=True, rename={collective.name.lower(): collective.name for collective in COUNTED}):
    broadcast: _Count
    reduce: _Count
    allgather: _Count
    reducescatter: _Count
    allreduce: _Count


class _RankEntry(Struct, frozen=True):
    # All fields are required. Otherwise `{}` would be a rank, and an answer of a few MB would take gigabytes.
    rank: _Rank
    host: _Word
    pid: _Number
    cuda_dev: _Number
    nvml_dev: _Number
    status: _Status
    collective_counts: _Counts


class _MissingStatus(Struct, frozen=True):
    unresponsive: bool
    considered_dead: bool


class _MissingEntry(Struct, frozen=True):
    rank: _Rank
    host: _Word
    pid: _Number
    cuda_dev: _Number
    nvml_dev: _Number
    status: _MissingStatus


class _Communicator(Struct, frozen=True):
    hash: _Word
    size: _Rank
    ranks: list[_RankEntry]
    missing_ranks: list[_MissingEntry]


class _Collection(Struct, frozen=True):
    timeouts_count: _Count = 0


class _Document(Struct, frozen=True):
    nccl_version: _Word
    communicators: list[_Communicator]
    ras: _Collection = field(default_factory=_Collection)


def parse_json(raw: bytes, limit: int) -> RasAnswer:
    """The value of an answer of at most `limit` bytes. Raises UntrustedError."""
    try:
        document = decode(raw, _Document, limit)
    except UntrustedError:
        repaired = _FORGOTTEN.sub(rb"\1,\2", raw)
        if repaired == raw:
            raise
        document = decode(repaired, _Document, 2 * limit)
    return RasAnswer(
        nccl_version=document.nccl_version,
        form="json",
        communicators=tuple(map(_make_communicator, document.communicators)),
        timeouts=document.ras.timeouts_count,
    )


def _make_communicator(entry: _Communicator) -> RasCommunicator:
    hash_ = _HASH.fullmatch(entry.hash)
    if hash_ is None:
        raise UntrustedError("has a communicator without a hash")
    return RasCommunicator(
        hash=hash_text(hash_[1]),
        size=entry.size,
        ranks=tuple(map(_make_rank, entry.ranks)),
        missing=tuple(map(_make_missing_rank, entry.missing_ranks)),
    )


def _make_rank(entry: _RankEntry) -> RasRank:
    counts, status = entry.collective_counts, entry.status
    return RasRank(
        rank=entry.rank,
        host=address(entry.host),
        pid=_none_if_negative(entry.pid),
        cuda_device=_none_if_negative(entry.cuda_dev),
        nvml_device=_none_if_negative(entry.nvml_dev),
        counts=(counts.broadcast, counts.reduce, counts.allgather, counts.reducescatter, counts.allreduce),
        init_state=status.init_state,
        async_error=status.async_error,
        finalizing=status.finalize_called or status.destroy_flag,
        aborted=status.abort_flag,
    )


def _make_missing_rank(entry: _MissingEntry) -> RasMissingRank:
    return RasMissingRank(
        rank=entry.rank,
        host=address(entry.host),
        pid=_none_if_negative(entry.pid),
        cuda_device=_none_if_negative(entry.cuda_dev),
        nvml_device=_none_if_negative(entry.nvml_dev),
        unresponsive=entry.status.unresponsive,
        dead=entry.status.considered_dead,
    )


def _none_if_negative(number: int) -> int | None:
    return number if number >= 0 else None
