"""Finds the fewest (or cheapest) devices a training job fits on, and proves it.

Pure computation: profiles, offers and a problem go in, a plan with a certificate comes
out. It never imports torch, kopf, kubernetes or a database (docs/decisions/0001).

    records/            what every part of Plimsoll exchanges: frozen types, JSON
    errors              what can go wrong with data, and who catches it
    exit_codes          exit codes of training and profiling processes
    pod_names           names on which the operator and its pods agree
    cache_folder        where things lie that can be made again
    units               bytes as people read them, rounded to the side that stays true
    device_table        devices that are known by name, with sources
    offer_catalog       tables of machines and prices, read and checked
    engines             the engines that are planned for
    search_fields       the fields of a question that a person sets: a row for each
    registry            members of a package, a file for each
    vocabulary          errors and texts in the words of whoever asked
    memory/             peak of a rank: the formula, and all of it for all stages
    timing/             seconds of a step: layers, links, the schedule walked
    text/               plans, certificates and answers in words
    overhead/           bytes of a device besides tensors
    schedules/          orders of passes, a file for each
    techniques/         choices of a stage that hold less, a file for each
    search/             every tuple decided, plan and certificate: `search.answer.solve`
    graph/              operators placed on devices: `graph.place.place`
    revising/           a plan in the place of the one that runs
    version             of Plimsoll
"""

from plimsoll_planner.version import __version__

__all__ = ["__version__"]
