"""What explains a blockage, and settings that may: those that differ between ranks, and between the launches of the nodes."""

from typing import ClassVar

import msgspec
from msgspec import Struct

from hangdoc.reasoning.model.agreement import Agreement
from hangdoc.reasoning.model.holds import Ends
from hangdoc.run_identity import is_loopback
from hangdoc.snapshot import Host, Process


class Cause(Struct, frozen=True):
    """Why a blockage exists. The finding reports the cause, with the blockage as evidence."""

    NAME: ClassVar[str]
    culprits: tuple[int, ...] | None = None
    """The ranks to blame; None for the culprits of the blockage."""
    ends: Ends | None = None
    """Whether the blockage can end, if the cause decides it."""


# --- settings that differ between ranks -------------------------------------------------------------------------------


class Differs(Cause, frozen=True, kw_only=True):
    """A setting that differs between ranks. `decisive`: it changes which collectives are called. `names_data`: it may change how
    often. `certain`: its name says what it is for. `by_node`: all ranks of a node have the same value."""

    NAME = "differs"
    name: str
    values: Agreement[str | None, int]
    why: str = ""
    decisive: bool = True
    names_data: bool = False
    certain: bool = True
    by_node: bool = False

    def value_of(self, rank: int) -> str | None:
        """The value of one rank."""
        return next((value for value, ranks in self.values.values if rank in ranks), None)


class OptionDiffers(Differs, frozen=True, kw_only=True):
    """An option of the command line."""

    NAME = "option"


class VariableDiffers(Differs, frozen=True, kw_only=True):
    """An environment variable."""

    NAME = "variable"


class VersionDiffers(Differs, frozen=True, kw_only=True):
    """The version of torch or Python."""

    NAME = "version"


# --- launches whose settings differ between the nodes -----------------------------------------------------------------


class Part(msgspec.Struct, frozen=True):
    """The launcher of a node, or a rank that was started without one, with its settings."""

    host: Host
    process: Process
    place: str
    nodes: str | None
    address: str | None
    port: str | None
    run_id: str | None
    number: int | None
    """Node rank of a launcher, rank of a rank."""
    ranks: tuple[int, ...]
    """The ranks that it starts, if it says so."""
    init_method: str | None = None
    """Of a rank: the URL that it passed to init_process_group, instead of the variables."""

    @property
    def meets_at(self) -> str | None:
        """The master address. A loopback address names each host itself."""
        return f"localhost of {self.host.name}" if is_loopback(self.address or "") else self.address


class LaunchesDiffer(Cause, frozen=True, kw_only=True):
    """Settings that differ between the nodes."""

    NAME = "launches-differ"
    parts: tuple[Part, ...]
    differences: tuple[str, ...]
    wrong: tuple[Part, ...]
    reference: Part
    """The part that the others must match."""
    met: bool
    """Whether the run trains in spite of the differences."""

    @property
    def one_name(self) -> bool:
        """Whether the only difference is what `localhost` is on each host."""
        settings = {(part.address, part.port, part.nodes, part.init_method, part.run_id) for part in self.parts}
        return len(settings) == 1 and len(self.differences) == 1
