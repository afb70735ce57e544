"""Carrying out decisions: one order of things, whatever launches the processes.

commands         the command lines of profiling, replay, rehearsal and training
protocols        what launches children, and where attempts are written down
planning_state   what a decision is made on, with what carrying it out needs
executor         the only match over actions
pods             kinds of objects that make pods on a cluster
pod_backend      the back end of a cluster: pods, and what stands beside them
workloads        where the objects stand that make pods
admission        whether a plan can be launched, asked before any work
local            the back end that launches processes on this machine
"""
