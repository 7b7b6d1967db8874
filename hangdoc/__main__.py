"""`python -m hangdoc`: the command, for environments in which its script is not on the PATH."""

from hangdoc.cli.main import main

main()
