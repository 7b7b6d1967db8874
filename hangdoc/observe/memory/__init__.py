"""Reads an interpreter and its objects from another process's memory."""
