"""Step 1: from processes to runs."""
