"""A plan in the place of the one that runs: when, which, and how one becomes the other.

Pure, like all of the planner. Reading order:

    observed    stages as their ranks report them, and whether that is as planned
    moves       layers from one cut of the chain to another, one by one
    revise      the plan that is worth the moves
"""
