"""The files that torch's flight recorder leaves when a call reaches its timeout: read from a directory, as a snapshot."""
