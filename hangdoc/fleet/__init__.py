"""Many hosts: the collector runs on each of them, its bundle travels back, and the rest happens here."""
