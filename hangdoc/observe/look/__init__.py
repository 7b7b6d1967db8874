"""Runs the probes, once across a window (`observe`) or again and again (`polling`). Here is the list of all probes (`probes`)."""
