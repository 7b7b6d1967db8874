"""What the kernel says of processes and of the host: clocks, states, sockets, files, locks, control groups."""
