"""The work of the commands, without options and printing. The command line and `hangdoc.agents` share it."""
