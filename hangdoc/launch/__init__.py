"""Parses launch lines as text, through ssh, tmux and shells to torchrun and the script's arguments. Executes nothing."""
