"""Step 2: what each rank does, concluded from its own evidence alone."""
