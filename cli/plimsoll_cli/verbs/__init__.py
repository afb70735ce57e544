"""The verbs of the `plimsoll` command: a module for each, with a command of its name.

`plimsoll_cli.command` finds them by listing this package. With plans of this machine:

    run             from a manifest to a trained model and a report
    get             the plans, and where each one stands
    describe        one plan, with its proof and its memory
    logs            output of the processes of a plan
    cancel          stops a plan, so that it can go on later
    delete          removes a plan
    export_weights  trained weights in their model's own format
    report          everything about one plan as a page
    calibrations    bytes observed on devices besides tensors

With files, one step at a time:

    profile     the cost of each layer of a workload
    plan        the fewest devices for a model, and the proof
    solve       the largest sequence, micro-batch or depth that fits
    support     which models are known, and how one is read
    explain     why this count and not fewer
    compare     the usual cuts beside the exact ones
    offers      machines, with their devices and prices
    devices     devices that are known by name
"""
