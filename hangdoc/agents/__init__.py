"""`hangdoc mcp`: the same looks for a coding agent, over the Model Context Protocol. Read-only: it looks, reasons and answers.

`arguments` and `answers` are what goes in and out, as typed values; `looks` takes looks and keeps the last ones; `tools` is the
table of tools; `server` is the only module that knows the protocol.
"""
