"""Finds who outside of the observed run can end a wait: processes, files and locks. It is searched after the window."""
