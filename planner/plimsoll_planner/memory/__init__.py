"""Memory of a rank: from the lines of a profile to the bytes that decide a plan.

bounds             which of three numbers is meant
layer_state        state that replicas divide, or several layers share
carried_bytes      the bytes of values that skip layers, and of their gradients
chain_bytes        the bytes of every layer, as arrays for one bound and micro-batch
flow               how micro-batches go through a stage
engine_holdings    what the engine holds besides, as numbers in the formula
rank_peak          the formula of one rank, phase by phase, in plain Python
pareto             which options no other one beats
run_options        the options of all runs that begin at one layer
pruning            which options stay; their number is bounded, on the safe side
ladders            the quickest options of all runs that have room, by one search
option_arrays      the same formula for all runs of layers and recompute choices
joint_options      two sets of options together
stage_peaks        what the options need to become peaks: state, inputs, in flight
added_bounds       the least that recomputing adds, from sums over layers alone
host_memory        what a rank takes of its machine's memory
"""
