"""The text of NCCL's RAS service (`rasClientRunComms` in NCCL's src/ras/client_support.cc, 2.24 to 2.30.7).

It is made for people: of a communicator without a problem it has only the size, and otherwise the ranks that differ from most
others. With `VERBOSE STATUS`, it names each rank of a group of ranks that are equal, unless the group has half of the ranks or
more. If one group is not named, its ranks are the remaining ones, and their counts are known too.
"""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from hangdoc.observe.gpu.ras_words import address, hash_text
from hangdoc.regex import regex
from hangdoc.snapshot import RasAnswer, RasCommunicator, RasMissingRank, RasRank
from hangdoc.torch_facts.nccl import COUNTED, IN_PROGRESS
from hangdoc.untrusted import UntrustedError

_MOST_RANKS = 65_536
"""Of all communicators together."""
_MOST_LINES = 400_000
_LONGEST_LINE = 4_096
_MOST_REMAINING = 4_000_000
"""Ranks that are gone through for those that remain: each comparison of a communicator may go through all of its ranks."""
_VERSION = regex(r"NCCL version (\d[\w.+-]{0,63}) ")
_GROUP = regex(r"\s*(\d{1,9})\s+(\d{1,9})\s+\d{1,9}\s+\d{1,9}(?:-\d{1,9})?\s+(\d{1,9})\s+\d{1,9}\s+[A-Z]+\s+[A-Z,]+")
"""A row of the table: number of the group, communicators, nodes, ranks per node, ranks of each communicator, ranks in all."""
_COMMUNICATOR = regex(r"#(\d{1,9})-\d{1,9} \(([0-9a-f]{1,16})\) (INCOMPLETE|ERROR|MISMATCH)")
_PLACE = r"GPU (\d{1,9})(?: \(NVML (\d{1,9})\))? managed by process (\d{1,9}) on node (\S{1,64})"
_RANK = regex(rf"  Rank (\d{{1,9}})(?: ([a-z].{{0,99}}?))? -- (?:{_PLACE}|\[process information not found\])")
_RANK_ALONE = regex(r"  Rank ([\d,]{1,1024}) (has status [A-Z]{1,16})")
_RANKS = regex(r"  (\d{1,9}) ranks ([a-z].{0,99})")
_MISSING = regex(r"  The (?:missing|unknown) ranks?: ([\d,]{1,1024})")
_PROCESS = regex(r"  Process (\d{1,9}) on node (\S{1,64}) managing GPUs? .*")
_DIFFERENT = regex(r"  Communicator ranks have different (\w{1,32})(?: operation counts)?(?: .*)?")
_ERRORS = regex(r"  (Initialization|Asynchronous) errors? on .*")
_TIMEOUTS = regex(r"  Encountered (\d{1,9}) communication timeouts? .*")
_LAUNCHED = regex(r"(?:have|has) launched up to operation (\d{1,19})")
_STATUS = regex(r"(?:have|has) status ([A-Z]{1,16})")
_REPORTED = regex(r"reported (.{1,64})")
_NONE_LAUNCHED = ("have not launched any operations", "has not launched any operations")
_GONE = ("NOCOMM", "UNKNOWN")
"""The process answered, and is not in the communicator. 2.24 and 2.25 say UNKNOWN."""
_ERROR_NUMBERS = {
    "Unhandled CUDA error": 1, "System error": 2, "Internal error": 3, "Invalid argument": 4, "Invalid usage": 5,
    "Remote process error": 6, "NCCL operation in progress": IN_PROGRESS,
}  # fmt: skip
_NAMELESS_ERROR = -1
_KINDS = {collective.name: position for position, collective in enumerate(COUNTED)}
_NO_COUNTS: tuple[int | None, ...] = (None,) * len(COUNTED)


def parse_text(text: str) -> RasAnswer:
    """The value of an answer. Raises UntrustedError."""
    if text.count("\n") > _MOST_LINES:
        raise UntrustedError(f"has more than {_MOST_LINES:,} lines")
    reader = _Reader()
    for line in text.split("\n"):
        if len(line) <= _LONGEST_LINE:
            reader.read_line(line.rstrip("\r"))
    return reader.answer()


class _Made:
    """A communicator of which lines were read."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.ranks: dict[int, RasRank] = {}
        self.missing: dict[int, RasMissingRank] = {}


class _Counted:
    """The ranks that launched the same number of collectives, in one comparison."""

    def __init__(self, value: int, size: int) -> None:
        self.value, self.size = value, size
        self.named: set[int] = set()


class _Reader:
    """Reads line by line: what a line means depends on the headings above it."""

    def __init__(self) -> None:
        self._version: str | None = None
        self._sizes: dict[int, int] = {}
        """Ranks of each communicator, by the number of its group in the table."""
        self._total = self._timeouts = 0
        self._complete = False
        self._block = ""
        """INCOMPLETE, ERROR, MISMATCH; of the whole job also DEAD."""
        self._made: dict[str, _Made] = {}
        self._now: _Made | None = None
        """None for a block about the whole job."""
        self._compared: str | None = None
        """What the lines below compare: `status`, `collective` or a kind of collective, `Initialization`, `Asynchronous`."""
        self._counted: list[_Counted] = []
        self._last = ""
        """What is said of the ranks that the next lines name."""
        self._dead: set[tuple[int, str | None]] = set()
        self._named = self._gone_through = 0

    def answer(self) -> RasAnswer:
        """The value of all lines. Raises UntrustedError."""
        self._end_comparison()
        if self._version is None:
            raise UntrustedError("is not one of NCCL's RAS")
        if not self._complete:
            raise UntrustedError("is truncated")
        return RasAnswer(
            nccl_version=self._version,
            form="text",
            communicators=tuple(self._list_communicators()),
            left_out=max(0, self._total - len(self._made)),
            timeouts=self._timeouts,
        )

    def read_line(self, line: str) -> None:
        """Read the next line. Unknown ones are skipped: each version has some more. Raises UntrustedError."""
        if not line.strip():
            self._end_comparison()
        elif line.startswith("  ") and self._block:
            self._read_detail(line)
        elif (match := _COMMUNICATOR.fullmatch(line)) is not None:
            self._begin(match[3], self._communicator(int(match[1]), hash_text(match[2])))
        elif line in ("INCOMPLETE", "DEAD", "TIMEOUT"):
            self._begin(line, None)
        elif line == "Warnings":  # the last heading, also if nothing follows
            self._complete = True
            self._begin("", None)
        elif self._version is None and (match := _VERSION.match(line)) is not None:
            self._version = match[1]
        elif (match := _GROUP.fullmatch(line)) is not None and not self._made:
            self._sizes[int(match[1])] = int(match[3])
            self._total += int(match[2])

    def _begin(self, block: str, communicator: _Made | None) -> None:
        self._end_comparison()
        self._block, self._now, self._compared = block, communicator, None

    def _communicator(self, group: int, hash_: str) -> _Made:
        return self._made.setdefault(hash_, _Made(self._sizes.get(group, 0)))

    def _read_detail(self, line: str) -> None:
        """A line of a block."""
        if (match := _TIMEOUTS.fullmatch(line)) is not None:
            self._timeouts = int(match[1])
        elif self._now is None:
            if self._block == "DEAD" and (match := _PROCESS.fullmatch(line)) is not None:
                self._dead.add((int(match[1]), address(match[2])))
        elif (match := _RANK.fullmatch(line)) is not None:
            place = {
                "cuda_device": _parse_number(match[3]),
                "nvml_device": _parse_number(match[4] or match[3]),
                "pid": _parse_number(match[5]),
                "host": address(match[6]) if match[6] else None,
            }
            self._read_rank(self._now, int(match[1]), match[2] or self._last, place, alone=match[2] is not None)
        elif (match := _MISSING.fullmatch(line) or _RANK_ALONE.fullmatch(line)) is not None:
            said = match[2] if match.re.groups > 1 else f"has status {_GONE[0]}"
            for number in filter(str.isdigit, match[1].split(",")):
                if len(number) <= 9:
                    self._read_rank(self._now, int(number), said, {}, alone=True)
        elif (match := _DIFFERENT.fullmatch(line)) is not None or (match := _ERRORS.fullmatch(line)) is not None:
            self._end_comparison()
            self._compared, self._last = match[1], ""
        elif (match := _RANKS.fullmatch(line)) is not None:
            self._last = match[2]
            if (value := _parse_launched(match[2])) is not None:
                self._counted.append(_Counted(value, int(match[1])))

    def _read_rank(self, made: _Made, number: int, said: str, place: dict[str, Any], *, alone: bool) -> None:
        """A rank that a line names. `said` is what the line says of it, or the line before the list that it is in."""
        self._named += 1
        if self._named > _MOST_RANKS:
            raise UntrustedError(f"names more than {_MOST_RANKS:,} ranks")
        status = _STATUS.fullmatch(said)
        if self._block == "INCOMPLETE" or (status is not None and status[1] in _GONE):
            unresponsive = self._block == "INCOMPLETE"
            made.missing[number] = RasMissingRank(rank=number, unresponsive=unresponsive, **place)
            return
        rank = made.ranks.get(number) or RasRank(rank=number)
        rank = replace(rank, **{name: value for name, value in place.items() if value is not None})
        if (value := _parse_launched(said)) is not None:
            if alone:
                self._counted.append(_Counted(value, 1))
            if self._counted:
                self._counted[-1].named.add(number)
            rank = self._with_count(rank, value)
        elif status is not None:
            rank = _with_status(rank, status[1])
        elif (error := _REPORTED.fullmatch(said)) is not None:
            name = "init_state" if self._compared == "Initialization" else "async_error"
            rank = replace(rank, **{name: _ERROR_NUMBERS.get(error[1], _NAMELESS_ERROR)})
        made.ranks[number] = rank

    def _with_count(self, rank: RasRank, value: int) -> RasRank:
        """The rank with a count of what is compared now."""
        kind = _KINDS.get(self._compared or "")
        if kind is None:
            return replace(rank, launched=value) if self._compared == "collective" else rank
        counts = list(rank.counts or _NO_COUNTS)
        counts[kind] = value
        return replace(rank, counts=tuple(counts))

    def _end_comparison(self) -> None:
        """If one group of equal ranks was not named, give its count to the ranks that remain. Raises UntrustedError."""
        counted, self._counted, made = self._counted, [], self._now
        unnamed = [group for group in counted if not group.named]
        if made is None or len(unnamed) != 1 or self._block != "MISMATCH":
            return
        (rest,) = unnamed
        others = sum(len(group.named) for group in counted) + len(made.missing)
        if others + rest.size != made.size or made.size > _MOST_RANKS:
            return
        self._gone_through += made.size
        if self._gone_through > _MOST_REMAINING:
            raise UntrustedError("compares too many ranks")
        named = set(made.missing).union(*(group.named for group in counted))
        remaining = [number for number in range(made.size) if number not in named]
        if len(remaining) == rest.size:
            for number in remaining:
                made.ranks[number] = self._with_count(made.ranks.get(number) or RasRank(rank=number), rest.value)

    def _list_communicators(self) -> Iterator[RasCommunicator]:
        for hash_, made in self._made.items():
            missing = (
                replace(rank, dead=True) if (rank.pid, rank.host) in self._dead and rank.pid is not None else rank
                for _, rank in sorted(made.missing.items())
            )
            present = (rank for number, rank in sorted(made.ranks.items()) if number not in made.missing)
            yield RasCommunicator(hash=hash_, size=made.size, ranks=tuple(present), missing=tuple(missing))


def _parse_number(digits: str | None) -> int | None:
    return int(digits) if digits else None


def _parse_launched(said: str) -> int | None:
    if said in _NONE_LAUNCHED:
        return 0
    match = _LAUNCHED.fullmatch(said)
    return min(int(match[1]), 2**63 - 1) if match is not None else None


def _with_status(rank: RasRank, status: str) -> RasRank:
    return replace(
        rank,
        init_state={"INIT": IN_PROGRESS, "RUNNING": 0}.get(status, rank.init_state),
        finalizing=rank.finalizing or status == "FINALIZE",
        aborted=rank.aborted or status == "ABORT",
    )
