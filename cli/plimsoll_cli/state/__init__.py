"""Plans that can be read: those of the state directory of a user, or of a cluster.

state_dir     the folder, its store, its plans
liveness      whether a plan runs now, and who watches it
shown_plan    one plan as it is listed, and its state in a word
run_record    everything that is known of one plan, as plain data
gather        reads that from a state directory
cluster_maps  the same out of the ConfigMaps of a plan
cluster       reads those from a cluster
source        which of the two a verb reads, by its options
resolve       the plan that a manifest runs: the one under way, or a new one
"""
