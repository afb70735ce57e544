"""Data that the parts of Plimsoll exchange: frozen types, checked, JSON in and out.

The standard library alone, because trainer and profiler carry these modules into users'
images (docs/decisions/0006). Reading order is import order:

    bounds, shape, record, document     how a record checks itself and becomes JSON
    interval                            lower, expected, upper; the three verdicts
    precision, layer_costs, carried, fingerprint,
    graph_profile, model_profile        what a workload costs, by layer and operator
    device_overhead, engine, offer      what it runs on
    strategy                            how it is spread over devices
    objective, limits, override         wishes that a person may have
    fixed_parts, problem                the question
    placement_plan                      devices of the operators of a graph
    plan, space, certificate            the answer and its proof
    frontier, grid                      memory against speed; other counts and batches
    solution                            all of the answer
    replay, observation                 what a replay found, and what really happened
    revision                            a plan in the place of the one that runs
    task                                a task, and what became of it
    rehearsal                           what one rank held, alone on a device
"""
