"""Models with branches: operators of one step, placed one by one over several ranks.

Beside `engine`, which runs chains of layers. Every rank captures the same graph, runs
its nodes in one order that all ranks share, and holds what the planner's curve says, to
the byte on an emulated device (`plimsoll_planner.graph`). Reading order:

    workload      a training job whose model is one module
    graph         a captured step: nodes, forms, storages
    refusals      what a model may not do while it is captured
    origins       modules that operators come from
    tracing       torch's graph of a step, without aliases and writes
    capture       our graph of it
    costs         seconds and workspaces of operators, measured one by one
    profile       the planner's record, and whether a graph is still the same
    states        parameters of a rank, their gradients and optimizers
    transport     values on their way
    interpreter   actions of a rank, carried out
    training      a rank's steps
    evaluating    the loss on other data
    checkpoint    saves a rank's states, and reads them under any placement
"""
