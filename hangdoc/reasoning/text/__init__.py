"""The sentences that findings are made of."""
