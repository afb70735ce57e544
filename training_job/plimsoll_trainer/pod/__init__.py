"""The first process of a pod: the keeper of its ranks, and what tells about them.

__main__    from the environment to the exit code
inputs      what the operator has put beside the pod: plan, profile
outputs     what the processes say, passed on to the log of the container
reports     what ranks report, read from named pipes
mail        letters to the operator, tried again until somebody takes them
farewell    the end of all processes, as termination message and exit code
"""
