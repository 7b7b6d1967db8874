"""The ledger: which calls has each rank made in each process group?

It is filled from torch's flight recorder, and from the stack of a rank where there is no record, which gives one call
and is marked as inferred (`from_records`). `compare` says what the ranks' calls show together and which side is odd,
`history` where they first differed, `lags` who comes late, and `past` what each rank did before the look. `nccl_counts`
is for calls that torch does not record.
"""
