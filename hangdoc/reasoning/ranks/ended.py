"""How a process ended."""

import signal

from hangdoc.snapshot import Process

_SIGNALS = frozenset(signal.Signals)


def how_it_ended(process: Process) -> str:
    """The exit code or signal of a process that has ended, as text (waitpid(2))."""
    code = process.exit_code
    if code is None:
        return "exit status unknown"
    if code & 0x7F:
        number = code & 0x7F
        return f"killed by {signal.Signals(number).name if number in _SIGNALS else f'signal {number}'}"
    return f"exited with code {code >> 8 & 0xFF}"
