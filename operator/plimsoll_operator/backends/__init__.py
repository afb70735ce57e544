"""Carrying out decisions: one order of things, whatever launches the processes.

commands         the command lines of profiling, replay, rehearsal and training
protocols        what launches children, and where attempts are written down
planning_state   what a decision is made on, with what carrying it out needs
executor         the only match over actions
pods             back ends that launch pods
local            the back end that launches processes on this machine
"""
