"""Rank 0 computes a long metric alone while rank 1 waits at the barrier. It is slow and not hung."""

# /// hangbench
# launch = "scenario"
# verdict = ["waiting"]
# states = ["evaluating","in-collective"]
# finding = "HD602"
# severity = "info"
# culprits = [0]
# victims = [1]
# ///
