"""Stacks of processes, the source of their frames, and the counters in their variables."""
