"""Runs a plan: the same model on many ranks, in the user's own image.

It travels into users' images through an init container, so it needs the standard
library, torch and numpy, and nothing else (docs/decisions/0006).

    errors, out_of_memory           what can go wrong, and how it leaves the process
    requirements                    which torch and numpy it needs
    torch_internals                 every private name of torch that is used

    workload, entrypoint, arguments what a user writes, and how it is found
    wrapped_modules                 modules that are refused
    fingerprint, source_files       which code that is
    adapters/                       workloads from models that exist

    batches                         samples of a workload, made and checked
    stage, boundaries               the layers of one rank, and what passes between them
    training                        a step of one rank: schedule, gradients, optimizer
    world, meeting, shared_tensors, equal_replicas,
    gradients, layer_optimizer, random_keys
                                    its parts

    options, admission, assignment  what to run, whether it may, and as what
    device, emulated/, restart      what it runs on
    peaks                           how full that gets
    reports, report_sink, console   what it tells
    checkpoint/, checkpointing      what it saves, and when
    control, stopping, failures     what the ranks agree on, and how they end
    keeper, pod/                    the process above the ranks, here and in a pod
    run, session                    all of it together: `python -m plimsoll_trainer`
"""
