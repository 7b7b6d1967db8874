"""The ledger: which calls has each rank made in each process group?

It is filled from torch's flight recorder (`from_recorder`), and from the stack of a rank where there is no record
(`from_stacks`), which gives one call and is marked as inferred. `compare` says what the ranks' calls show together, `history`
where they first differed, and `lags` who comes late. Nothing here imports the rest of `reasoning`.
"""
