"""The first stage: probes read processes twice, at both ends of a window, and change nothing. See docs/design.md."""
