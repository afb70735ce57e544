"""Time of a step: seconds of layers, links between ranks, the schedule walked.

ticks           the unit in which sums of seconds are exact
chain_seconds   seconds of every layer, measured or estimated, for one bound
topology        pods and nodes, and the link between two ranks
added_seconds   what layers add to their passes that are not kept
stage_runs      seconds of every run of layers as a stage, and of what is around it
stage_times     seconds and bytes of one stage, as a walk needs them
capped_rounds   the walk of stages with fewer micro-batches in flight
schedule        what an order of passes states of itself (`schedules` has them)
step_walk       the step itself, operation by operation
walk_bounds     bounds of the step, if its passes lie within bounds
"""
