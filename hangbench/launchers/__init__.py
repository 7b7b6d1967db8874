"""Runs every launcher that users have, each next to a job of another launcher."""
