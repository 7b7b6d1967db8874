"""Two nodes, 201 shards against 4: rank 1 ran out of data and left its loop. Rank 0 waits for it in the gradient all-
reduce of the next batch.
"""

# /// hangbench
# launch = "scenario"
# verdict = ["hung"]
# states = ["in-collective","in-collective"]
# finding = "HD101"
# culprits = [1]
# victims = [0]
# ///
