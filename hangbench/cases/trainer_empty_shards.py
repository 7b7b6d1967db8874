"""The second node has no training shard, and its loader starts over forever at full CPU. Rank 0 waits for its first
batch's all-reduce.
"""

# /// hangbench
# launch = "scenario"
# verdict = ["hung"]
# states = ["in-collective","loading-data"]
# finding = "HD101"
# culprits = [1]
# victims = [0]
# ///
