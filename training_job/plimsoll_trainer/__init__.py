"""Runs a plan: the same model on many ranks, in the user's own image.

It travels into users' images through an init container, so it needs the standard
library, torch and numpy, and nothing else (docs/decisions/0006); what some optimizers
are made from is imported where one is asked for.

    errors, out_of_memory       what can go wrong, and what stands for a full device
    torch_internals             every private name of torch that is used
    typed                       arguments as functions declare them
    evaluation                  other data that the model is evaluated on
    carried                     values that layers carry past others
    workload                    what a user writes
    callbacks, metric_loggers   who hears of steps, and three that write figures
    streams                     batches out of a data set that is only read on
    random_keys                 random numbers that depend on no rank
    epochs                      batches out of a data set of a known length
    sequence_parallel           how layers let ranks split sequences between them
    optimizers, schedules       optimizers and learning rates by name

    user_code/                  the code of a user: found, identified and called
    engine/                     what the ranks compute in a step
    adapters/                   workloads from models that exist
    huggingface/                models of `transformers` without code of one's own
    emulated/, devices/         what a rank runs on, and how full that gets
    reporting/                  what a rank reports
    checkpoint/                 what is saved, and how it is read
    placed/                     models with branches, operator by operator
    process/                    one training process: `python -m plimsoll_trainer`
    export                      weights of a checkpoint in the model's own format
    supervisor, pod/            the process above the ranks, here and in a pod

A room imports those above it and none below.
"""
