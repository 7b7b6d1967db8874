"""What the evidence about one process says, before anything is concluded."""
