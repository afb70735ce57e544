"""Carrying out decisions: one order of things, whatever launches the processes.

observed    what a decision is made on, with what carrying it out needs
backend     what launches children, and where attempts are written down: protocols
executor    the only match over actions
"""
