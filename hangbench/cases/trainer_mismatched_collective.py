"""Rank 2 calls all_reduce while ranks 0 and 1 call broadcast. None of them can finish."""

# /// hangbench
# launch = "scenario"
# verdict = ["hung"]
# ranks = 3
# states = ["in-collective","in-collective","in-collective"]
# finding = "HD201"
# culprits = [2]
# victims = [0,1]
# ///
