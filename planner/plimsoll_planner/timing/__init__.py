"""Time of a step: seconds of layers, links between ranks, the schedule walked.

chain_seconds   seconds of every layer, measured or estimated, for one bound
topology        pods and nodes, and which link two ranks have
step_bound      lower bound of a step, as a matrix over all stages
schedule        the operations of every rank, in order
step_walk       the step itself, operation by operation
"""
