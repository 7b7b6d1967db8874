"""A dataloader worker of rank 1 opens a shard that does not respond. Rank 1 waits for its batch, and rank 0 for rank
1.
"""

# /// hangbench
# launch = "scenario"
# verdict = ["hung"]
# states = ["in-collective","waiting-data"]
# finding = "HD103"
# culprits = [1]
# victims = [0]
# ///
