"""Runs scripts that their authors wrote without knowing the rules (BRIEF.md), and compares the first look with their truth."""
