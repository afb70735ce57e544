"""A plan in the place of the one that runs: when, which, and how one becomes the other.

Pure, like all of the planner. Reading order:

    moves       layers from one cut of the chain to another, one by one
"""
