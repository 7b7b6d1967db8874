"""Before a launch: can this topology work at all? NodeReport of each node, links between them, and checks of both."""
