"""The second node has no training shard, and its loader restarts
forever at full CPU. Rank 0 waits for the all-reduce of its first
batch."""

# /// hangbench
# launch = "scenario"
# verdict = ["hung"]
# states = ["in-collective","loading-data"]
# finding = "HD101"
# culprits = [1]
# victims = [0]
# ///
