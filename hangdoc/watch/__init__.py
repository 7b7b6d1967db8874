"""Watches unattended: takes one look after another, and acts on a confirmed hang."""
