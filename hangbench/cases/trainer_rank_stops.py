"""Rank 1 is stopped by SIGSTOP in the middle of training. Rank 0 waits for it."""

# /// hangbench
# launch = "scenario"
# verdict = ["hung"]
# states = ["in-collective","stopped"]
# finding = "HD302"
# culprits = [1]
# victims = [0]
# ///
