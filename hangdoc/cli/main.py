"""The entry point. `--version` and `--help` must not wait for what they do not use."""

import sys


def main() -> None:
    """Run hangdoc; exits with the contract's code (README.md)."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from hangdoc.version import __version__

        print(f"hangdoc {__version__}")
        return
    from hangdoc.cli.group import run

    sys.exit(run(sys.argv[1:]))
