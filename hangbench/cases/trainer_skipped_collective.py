"""Rank 1 skips one broadcast at step 3 and is in a later collective. Rank 0 waits in the broadcast."""

# /// hangbench
# launch = "scenario"
# verdict = ["hung"]
# states = ["in-collective","in-collective"]
# finding = "HD203"
# culprits = [1]
# victims = [0]
# ///
