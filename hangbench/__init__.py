"""Real training scripts with known answers, run live, looked at by hangdoc and scored: `python -m hangbench`."""
