"""Runs a plan: the same model on many ranks, in the user's own image.

It travels into users' images through an init container, so it needs the standard
library, torch and numpy, and nothing else (docs/decisions/0006).

    errors                          what can go wrong, and how it leaves the process

    workload, entrypoint            what a user writes, and how it is found
    adapters/                       workloads from models that exist

    stage, boundaries               the layers of one rank, and what passes between them
    training                        a step of one rank: schedule, gradients, optimizer
    world, shared_tensors,
    layer_optimizer, random_keys    its parts

    options, admission, assignment  what to run, whether it may, and as what
    device, emulated/, peaks        what it runs on, and how full that gets
    reports, report_sink, console   what it tells
    checkpoint/, checkpointing      what it saves, and when
    control, stopping, failures     what the ranks agree on, and how they end
    run, session                    all of it together: `python -m plimsoll_trainer`
"""
