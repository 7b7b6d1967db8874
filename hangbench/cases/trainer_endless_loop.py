"""Rank 1 computes an iteration that never converges. Rank 0 waits for it in a collective."""

# /// hangbench
# launch = "scenario"
# verdict = ["hung"]
# states = ["in-collective","computing"]
# finding = "HD202"
# culprits = [1]
# victims = [0]
# ///
