"""What all probes read with: the observation and its deadline, threads that may be given up, the rights of a process's owner."""
