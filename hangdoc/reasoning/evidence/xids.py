"""What the errors of cards in the kernel log mean, by their numbers.

From NVIDIA's catalog: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
"""

from typing import Literal, NamedTuple, get_args

from hangdoc.snapshot import CardEvent

Weight = Literal["ends", "program", "link", "hint", "consequence"]
WEIGHTS: tuple[Weight, ...] = get_args(Weight)
"""`ends`: kernels on the card end or never finish. `program`: a kernel of a process did something that is not allowed, and all
its kernels end. `link`: data may not pass between cards. `hint`: the card may fail. `consequence`: it follows from another error
or from the end of a process, and alone shows nothing. The strongest first."""


class Xid(NamedTuple):
    """One kind of error."""

    weight: Weight
    meaning: str
    """One clause about the card."""


_XIDS = {
    13: Xid("program", "a kernel failed (graphics engine exception)"),
    31: Xid("program", "a kernel used an invalid address (MMU fault)"),
    43: Xid("consequence", "the driver ended the kernels of a process"),
    45: Xid("consequence", "a process with kernels on it ended"),
    46: Xid("ends", "it stopped processing"),
    48: Xid("ends", "its memory has an error that ECC could not correct"),
    62: Xid("ends", "one of its controllers halted"),
    63: Xid("consequence", "a row of its memory is going to be replaced"),
    64: Xid("hint", "a row of its memory could not be replaced"),
    74: Xid("link", "an NVLink has an error"),
    79: Xid("ends", "it has fallen off the bus"),
    92: Xid("hint", "its memory has many errors that ECC corrects"),
    94: Xid("ends", "its memory has an uncorrected error, and the kernels of one process ended"),
    95: Xid("ends", "its memory has an uncorrected error, and the kernels of all processes ended"),
    109: Xid("ends", "a context switch on it took too long"),
    119: Xid("ends", "its system processor (GSP) does not answer the driver"),
    120: Xid("ends", "its system processor (GSP) has failed"),
    137: Xid("program", "another card made an access over NVLink that is not allowed"),
    140: Xid("ends", "its memory has an error that ECC could not correct"),
    143: Xid("ends", "it could not be initialized"),
    **dict.fromkeys(range(144, 151), Xid("link", "an NVLink has an error")),
    154: Xid("hint", "the driver asks for a reset of it"),
    155: Xid("link", "an NVLink is down"),
    158: Xid("ends", "it has a fatal timeout"),
    167: Xid("ends", "it has a fatal timeout on the PCI bus"),
}
_OTHER = Xid("consequence", "its driver reports an error")
_OF_PROCESS = frozenset((13, 31, 43, 45, 94, 109, 137))
"""Errors that end only the kernels of the process that the message names."""
_NOT_FATAL = ("Nonfatal", "Non-fatal")


def meaning_of(event: CardEvent) -> Xid:
    """What an error means. A link error that calls itself not fatal is a hint."""
    if event.kind == "SXid":
        weight: Weight = "link" if event.text.startswith("Fatal") else "hint"
        return Xid(weight, "a switch between the cards has an error")
    known = _XIDS.get(event.number, _OTHER)
    if known.weight == "link" and any(word in event.text.split() for word in _NOT_FATAL):
        return known._replace(weight="hint")
    return known


def concerns_process_alone(event: CardEvent) -> bool:
    """Whether an error concerns only the process that its message names, and not the other ones on the card."""
    return event.kind == "Xid" and event.pid is not None and event.number in _OF_PROCESS


def name_of(event: CardEvent) -> str:
    """`Xid 79`."""
    return f"{event.kind} {event.number}"
