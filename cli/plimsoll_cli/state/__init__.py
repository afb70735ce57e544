"""The state directory of a user, and what it holds of each plan.

state_dir     the folder, its store, its plans
liveness      whether a plan runs now, who watches it, and its state in a word
run_record    everything that is known of one plan, as plain data
gather        reads that from a state directory
resolve       the plan that a manifest runs: the one under way, or a new one
"""
