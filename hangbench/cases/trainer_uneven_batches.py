"""Both ranks read the same data, but rank 0 has one row
group more. Rank 1 left the loop first, and rank 0 waits for
it."""

# /// hangbench
# launch = "scenario"
# verdict = ["hung"]
# states = ["in-collective","in-collective"]
# finding = "HD102"
# culprits = [1]
# victims = [0]
# ///
