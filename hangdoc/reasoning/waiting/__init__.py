"""Which rank waits for which, where these chains end, and what blocks a run there."""
