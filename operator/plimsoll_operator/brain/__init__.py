"""The decision: given what is seen, what is done next, and what is said.

`decide` is pure and looks at everything anew each time; `seen` is what it looks at,
`actions` what it may ask for. Its steps are in `preparing`, `rehearsing` and
`attempting`, those that a child brings about in `child_steps`; `failures` is the table
of what follows an attempt's end.
"""
