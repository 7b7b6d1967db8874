"""Rank 1 asks a question and waits for input. Rank 0 waits for rank 1."""

# /// hangbench
# launch = "scenario"
# verdict = ["hung"]
# states = ["in-collective","waiting-input"]
# finding = "HD302"
# culprits = [1]
# victims = [0]
# ///
