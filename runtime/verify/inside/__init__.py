"""What runs inside a verification sandbox: standard library only (and pytest), copied there as plain files.

`main` is the trusted parent (uid 0 of the sandbox); `child` the program in which candidate code runs (uid 1000).
Only `codec` runs on both sides.
"""
