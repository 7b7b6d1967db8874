"""What the commands do, without their options and without printing: shared by the command line and by `hangdoc.agents`."""
