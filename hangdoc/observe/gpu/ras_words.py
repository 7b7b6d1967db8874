"""Words that both forms of a RAS answer use."""

from hangdoc.regex import regex

_ADDRESS = regex(r"[0-9a-fA-F:.]{2,45}")


def address(text: str) -> str | None:
    """The address of a host, which NCCL prints as inet_ntop(3) does; None for anything else, such as `unknown`."""
    return text if _ADDRESS.fullmatch(text) else None


def hash_text(digits: str) -> str:
    """The hash of a communicator, of which JSON has no leading zeros, in 16 digits."""
    return f"{int(digits, 16):016x}"
