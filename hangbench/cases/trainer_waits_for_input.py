"""Rank 1 asks a person and waits for the answer. Rank 0 waits for rank 1."""

# /// hangbench
# launch = "scenario"
# verdict = ["hung"]
# states = ["in-collective","waiting-input"]
# finding = "HD302"
# culprits = [1]
# victims = [0]
# ///
