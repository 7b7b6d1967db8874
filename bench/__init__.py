"""Figures for docs/performance.md: `make bench`. Ratios against a peer or a baseline, taken in one run."""
