"""The entry point. `--version` and `--help` must not wait for what they do not use."""

import contextlib
import gc
import os
import signal
import sys


def main() -> None:
    """Run hangdoc; exits with the contract's code (README.md)."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from hangdoc.version import __version__

        print(f"hangdoc {__version__}")
        return
    # Hundreds of files are read before there is anything to interrupt; a traceback out of one of them tells nobody
    # anything, so until then Ctrl-C ends the process as it ends any other.
    raising = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a shell may have it ignored
    if raising:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()  # hundreds of modules are loaded, and nothing of them is garbage; the commands that last enable it again
    from hangdoc.cli.group import run

    if raising:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = run(sys.argv[1:])
    # Exit at once: a thread may still be blocked on a directory that does not answer, and Python would wait for it forever.
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
