"""Launch lines, read as text: through ssh, tmux and shells down to torchrun and the script's arguments. Nothing is executed."""
