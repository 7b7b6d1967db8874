"""Programs that were not written here: entry points of packages on PyPI, started as their users start them.

Each runs healthy and with faults that touch no line of it (data, environment, arguments, signals): `make foreign`.
docs/accuracy-foreign.md has the results.
"""
