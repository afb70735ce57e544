"""The life of one training process, from its options to its exit code.

requirements    which torch and numpy it needs
options         its command line
admission       whether the plan may run here
assignment      the work of the job's ranks
steps           the steps of a rank, whatever engine runs them
placed_run      a rank of a plan that places operators
stopping        the request to stop
restart         the process as the emulated device of its plan
meeting         where the ranks find each other
failures        what ended a rank, as one line and an exit code
host_memory     whether the machine has room for optimizers
checkpointing   when to save, and where to resume
evaluations     when the model is evaluated, and whether it gets better
losses          whether a step has a loss
calls           who is called between steps
revisions       plans in the place of the one that runs
session         from the first step to the last
run             all of it together
"""
