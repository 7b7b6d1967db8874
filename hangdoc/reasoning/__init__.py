"""The third room: pure functions of the snapshot."""
