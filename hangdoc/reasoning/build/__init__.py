"""From the processes of runs to their ranks and calls: one `Run` for each."""
