"""Carrying out decisions: one order of things, whatever launches the processes.

commands         the command lines of profiling, replay, rehearsal and training
protocols        what launches tasks, and where attempts are written down
planning_state   what a decision is made on, with what carrying it out needs
revision_effects  what is done to revise a plan that runs
executor         the only match over actions
launch_backend   kinds of objects that make pods, written and read
pods             a file for each such kind
workloads        objects that make pods, as tasks of a plan
pod_backend      the back end of a cluster: pods, and what stands beside them
admission        whether a plan can be launched, asked before any work
local            the back end that launches processes on this machine
"""
