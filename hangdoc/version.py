"""The version, in one place; setuptools and `hangdoc --version` read it here."""

__version__ = "0.1.0"
