"""Checks before a launch whether the nodes can train together: a report of each node, test connections, and checks of both."""
