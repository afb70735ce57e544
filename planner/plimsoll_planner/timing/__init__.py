"""Time of a step: seconds of layers, links between ranks, the schedule walked.

ticks           the unit in which sums of seconds are exact
chain_seconds   seconds of every layer, measured or estimated, for one bound
topology        pods and nodes, and which link two ranks have
schedule        the operations of every rank, in order
stage_times     seconds and bytes of one stage, as a walk needs them
step_bound      lower bound of a step, as matrices over all stages
step_rounds     the walk of 1F1B, a round of all stages at a time
step_walk       the step itself, operation by operation
walk_bounds     where the step lies, when its passes lie within bounds
"""
