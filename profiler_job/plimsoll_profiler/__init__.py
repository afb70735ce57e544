"""Measures what a workload costs, layer by layer, on one device or on none.

Runs in the user's image like the trainer: the standard library, torch and numpy.

    request, messages       what is asked, and what the two processes say
    profiling, assemble     asks, survives the prober's death, fits the lines
    entrypoint_path         where the entry point is, before a process is started
    prober_process, prober  the process that probes, from outside and from inside
    cases, layer_probe      which layers are alike; one layer in its place
    layer_state             what it holds whatever the micro-batch; what ties share
    batch_statistics        whether its samples depend on one another
    layer_timing            seconds of layers that take turns
    meters, live_bytes      what counts bytes: fake tensors or a device
    kernel_workspaces       what kernels of the emulated device allocate inside
    operator_policy         the operators of a GPU, on fake tensors
    work_counter            FLOPs and bytes moved
    flop_formulas           what torch's table of FLOPs lacks
    uncounted_work          operators without a formula, and what they may do
    line_fit                lines over the micro-batch

    planned_work            the workload of a plan, held to the code that is here
    replay_process,         a rank's real stage and schedule on tensors without data
    replayer, rank_replay
    side_by_side            several ranks at a time, in processes
    self_check, toy         the replay against real processes
    rehearser, rehearsal    a rank with real tensors, alone on one device
    other_processes         what others use of that device
    errors                  what can go wrong, and who catches it
    __main__                all three, as a process that the loop starts
"""
