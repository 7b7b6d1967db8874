"""Settings that differ between ranks."""

from hangdoc.reasoning.model.agreement import Agreement
from hangdoc.reasoning.model.cause import Cause


class Differs(Cause, frozen=True, kw_only=True):
    """A setting that differs between ranks. `decisive`: it changes which collectives are called."""

    NAME = "differs"
    name: str
    values: Agreement[str | None, int]
    why: str = ""
    decisive: bool = True


class OptionDiffers(Differs, frozen=True, kw_only=True):
    """An option of the command line."""

    NAME = "option"


class VariableDiffers(Differs, frozen=True, kw_only=True):
    """An environment variable."""

    NAME = "variable"


class VersionDiffers(Differs, frozen=True, kw_only=True):
    """The version of torch or Python."""

    NAME = "version"
