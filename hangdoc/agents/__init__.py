"""`hangdoc mcp`: diagnoses for coding agents, over the Model Context Protocol. Read-only.

`arguments` and `answers` are the typed inputs and outputs of the tools. `looks` takes looks and keeps the last ones. `tools` is
the table of tools. `server` is the only module that knows the protocol.
"""
