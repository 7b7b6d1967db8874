"""The Textual app of `hangdoc top`."""
