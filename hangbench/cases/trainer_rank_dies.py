"""The rank of the second node was killed. Rank 0 waits in the run's store for a key that it would have written."""

# /// hangbench
# launch = "scenario"
# verdict = ["hung"]
# states = ["in-store","missing"]
# finding = "HD301"
# culprits = [1]
# victims = [0]
# ///
