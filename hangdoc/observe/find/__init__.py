"""Finds which processes are ranks and launchers, and whose run they are."""
