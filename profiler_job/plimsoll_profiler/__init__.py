"""Measures what a workload costs, layer by layer, on one device or on none.

Runs in the user's image like the trainer: the standard library, torch and numpy.

    line_fit    probes at a few micro-batches become constant, slope and residual
    errors      what can go wrong, and who catches it
"""
