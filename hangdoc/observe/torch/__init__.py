"""What torch and the trainer have written down in a process, read from outside."""
