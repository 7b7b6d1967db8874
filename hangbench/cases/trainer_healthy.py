"""The included trainer trains. Nothing is wrong."""

# /// hangbench
# launch = "scenario"
# verdict = ["healthy","waiting"]
# ///
