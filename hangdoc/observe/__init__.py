"""The first room: probes look at processes, twice across a window, and touch nothing. See docs/design.md."""
