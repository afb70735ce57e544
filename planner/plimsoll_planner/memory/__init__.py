"""Memory of a rank: from the lines of a profile to the bytes that decide a plan.

chain_bytes        the bytes of every layer, as arrays for one bound and micro-batch
engine_holdings    what the engine holds besides, as numbers in the formula
rank_peak          the formula of one rank, phase by phase, in plain Python
pareto             which labels no other one beats
thinning           keeps the number of labels bounded, on the safe side
recompute_labels   the same formula for all runs of layers and recompute choices
stage_peaks        what the labels need to become peaks: state, inputs, in flight
breakdown          what a predicted peak consists of, kind by kind
device_bytes       allocated -> reserved -> device, and the capacity backwards
"""
