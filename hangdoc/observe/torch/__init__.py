"""What torch itself has written down in a process, read from outside."""
