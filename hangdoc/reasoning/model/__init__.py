"""What the steps of the reasoning pass on: values, and nothing that concludes more from them."""
