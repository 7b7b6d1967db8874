"""One rule per file; its docstring is its page."""
