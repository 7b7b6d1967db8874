"""What explains a blockage: what differs between its two sides."""
