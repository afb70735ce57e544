"""Bytes of a device besides tensors: assumed, measured, learned from ranks that ran.

assumed            public figures that stand in for what was never measured
allowance          from tensors to device bytes, and from a capacity back to tensors
calibration        lines that are fitted to measured ranks
built_in           overheads that come with Plimsoll
observed           overheads from ranks that ran, and from ranks that ran out
other_namespaces   overheads that others observed, which only widen bounds
"""
