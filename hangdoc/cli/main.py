"""The entry point. `--version` and `--help` import only what they need."""

from hangdoc.cli import interrupts  # first: until it is loaded, Ctrl-C shows Python's traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:
    """Run hangdoc. Exits with one of the exit codes of docs/exit-codes.md."""
    run_to_end(_run)


def run_to_end(command: "Callable[[], int]") -> None:
    """Run a command and end this process with its exit code, also if it is interrupted or its output can't be written."""
    interrupts.end_at_once()
    import os
    import sys

    from hangdoc.cli import output

    output.prepare()
    try:
        code = command()
        sys.stdout.flush()
        interrupts.end_at_once()
    except (KeyboardInterrupt, SystemExit, RuntimeError) as error:
        # Before Python 3.12, what a signal raises while a class is created is the cause of a RuntimeError.
        ended = error.__cause__ if isinstance(error, RuntimeError) else error
        if isinstance(ended, KeyboardInterrupt):
            code = interrupts.INTERRUPTED
        elif isinstance(ended, SystemExit):  # of SIGTERM
            code = ended.code if isinstance(ended.code, int) else 1
        else:
            raise
    except output.OutputLost as lost:
        output.tell(f"hangdoc: {lost}")
        code = output.LOST
    # Exit at once: a thread may be blocked in a file system that does not answer, and Python would wait for it forever.
    os._exit(code)


def _run() -> int:
    import gc
    import sys

    if sys.argv[1:] in (["--version"], ["-V"]):
        from hangdoc.cli.output import show
        from hangdoc.version import __version__

        show(f"hangdoc {__version__}")
        return 0
    gc.disable()  # imports leave no garbage; commands that run for long enable it again
    from hangdoc.cli.group import run

    interrupts.end_with_cleanup()
    return run(sys.argv[1:])
