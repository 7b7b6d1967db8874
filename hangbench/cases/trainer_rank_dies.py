"""The rank of the second node was killed and left nothing. Rank 0 waits in the run's store for a key that it should
have written.
"""

# /// hangbench
# launch = "scenario"
# verdict = ["hung"]
# states = ["in-store","missing"]
# finding = "HD301"
# culprits = [1]
# victims = [0]
# ///
