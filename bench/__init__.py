"""Measures the figures of docs/performance.md: `make bench`. Ratios to a peer or a baseline are measured in one run."""
