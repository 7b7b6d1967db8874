"""The entry point. `--version` and `--help` import only what they need."""

import contextlib
import gc
import os
import signal
import sys


def main() -> None:
    """Run hangdoc. Exits with one of the exit codes of README.md."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from hangdoc.version import __version__

        print(f"hangdoc {__version__}")
        return
    # During the imports, Ctrl-C ends the process without a traceback, which would help nobody.
    raising = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # False if the shell ignores it
    if raising:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()  # imports leave no garbage; commands that run for long enable it again
    from hangdoc.cli.group import run

    if raising:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = run(sys.argv[1:])
    # Exit at once: a thread may be blocked in a file system that does not answer, and Python would wait for it forever.
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
