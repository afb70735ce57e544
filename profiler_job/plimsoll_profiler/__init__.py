"""Measures what a workload costs, layer by layer, on one device or on none.

Runs in the user's image like the trainer: the standard library, torch and numpy.

    errors              what can go wrong, and who catches it
    entrypoint_path     where the entry point is, before a process is started
    process_environment what a process of ours has on top of our environment
    counting/           what counts bytes and work
    probing/            the process that probes layers
    profiling/          the profile of a workload, from its probes
    reading/            how models of `transformers` are read
    ranks/              ranks of a plan without the others: replay and rehearsal
    start               starts those of our processes that load torch
    __main__            profile, replay, rehearse: as a process that the loop starts

A room imports those above it and none below.
"""
