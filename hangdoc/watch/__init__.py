"""No screen: look again and again, and act once a hang is sure."""
