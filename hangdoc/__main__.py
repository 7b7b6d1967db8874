"""`python -m hangdoc`: the command, where its script is not on the path."""

from hangdoc.cli.main import main

main()
