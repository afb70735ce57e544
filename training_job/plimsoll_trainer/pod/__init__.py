"""The first process of a pod: the supervisor of its ranks, and how it reports.

inputs              what the operator has put beside the pod: plan, profile
outputs             output of the processes, passed on to the log of the container
reports             what ranks report, read from named pipes
report_client       requests to the operator, repeated until they are answered
pending_reports     the newest report of each rank, until it is sent
termination_message the end of all processes, as a message and an exit code
start               the way into a pod's image
__main__            from the environment to the exit code
"""
