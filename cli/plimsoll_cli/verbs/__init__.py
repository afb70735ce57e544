"""The verbs of the `plimsoll` command: a module for each, with a command of its name.

`plimsoll_cli.command` finds them by listing this package. With plans of this machine:

    run             from a manifest to a trained model and a report
    get             the plans, and where each one stands
    describe        one plan, with its proof and its memory
    logs            what the processes of a plan have written
    cancel          stops a plan, so that it can go on later
    delete          forgets a plan
    report          everything about one plan as a page
    calibrations    what devices were seen to hold besides tensors

With files, one step at a time:

    profile     what the layers of a workload cost
    plan        the fewest devices for a profile, and the proof
    explain     why this count and not fewer
    compare     the usual cuts beside the exact ones
    offers      machines, with their devices and prices
"""
