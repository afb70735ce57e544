"""Runs a plan: the same model on many ranks, in the user's own image.

It travels into users' images through an init container, so it needs the standard
library, torch and numpy, and nothing else (docs/decisions/0006).

    fingerprint     what code on which versions runs here, and whether a plan is for it
    exit_codes      what the exit code of a rank or a profiling run tells the operator
    emulated/       a device without a GPU: tensors counted and capped
    errors          what can go wrong, and who catches it
"""
