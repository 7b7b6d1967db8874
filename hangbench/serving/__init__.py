"""Serving engines and actors on this machine's CPU, each brought into a known state and looked at once.

Each system is started as its users start it, in namespaces of its own. A file says that it is ready, and which process
has which role. `python -m hangbench.serving` keeps the bundle and the answer of each look.
"""
