"""Placement of operator graphs on devices that are alike, under their memory.

For models with width (towers, U-Nets, many embedding tables), where a chain of layers
would leave devices idle. ParDNN taken further; pure, and heuristic but for curve and
bounds. Reading order:

    arrays      a graph as arrays
    levels      longest paths
    chains      paths that are worth staying on one device
    mapping     devices of chains
    earliest    devices by earliest finish
    order       one order of all nodes
    transfers   sends that follow from a placement and an order
    curve       rules of life; bytes of every device, exact
    walk        seconds of a step
    repair      moves that bring every device under its capacity
    descent     a small graph, bettered by one group at a time
    bounds      what no placement can be below
    fullest     what makes up the peaks
    placed      a plan and its graph, read back and checked
    place       all of it: the way in
    actions     lists of what each rank does
"""
