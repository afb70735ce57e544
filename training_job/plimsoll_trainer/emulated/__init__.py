"""A device without a GPU: a worker whose tensors are counted and capped.

shim.c      the preloaded library that counts, and refuses what goes over the cap
device      builds the library, starts workers under it, reads its counters
"""
