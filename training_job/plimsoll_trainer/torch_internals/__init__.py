"""Every private name of torch that Plimsoll uses, and what it is used for.

A private name may change with any release, so each stands here once.

operators      see, count and name what runs

    FakeTensorMode       tensors with shape and type, without data: traces and replay
    FakeTensor           one of them
    convertible          lets modules of such tensors be converted and copied
    NEEDS_NUMBERS        what is raised where a number of theirs is asked for
    TorchDispatchMode    sees every operator: counts live bytes and work
    tree_iter, tree_map  walk what an operator takes and returns
    without_modes        runs an operator on real tensors in the middle of a trace
    argument_names       of an operator
    of_arguments         lets the counter of FLOPs give a formula tensors, not shapes
    BatchNorm            what all norms over a batch are made from
    storage_of           tells storages apart
    num_writes           tells whether a tensor was written to
    is_written_part      tells whether it was, and others in its memory do not know
    has_hooks            tells whether code changes a tensor's gradient
    flash_attention ...  operators that a GPU runs, by name, on fake tensors
    lists_by_default     lets optimizers choose as on a GPU, on fake tensors
    set_local            lets the part of a DTensor that is here lie elsewhere
    collectives          of tensor groups; a trace takes what wait_tensor gives for new
    FlopsHere            counts what is done with the parts of DTensors that are here

in_place       is_in_place_unseen tells what autograd does in place unless a mode looks
joint_graph    loss and gradients of a module, as torch's export traces both

    export_joint         forward and backward pass; writes are results of the graph
    export_forward       the forward pass alone
    is_operator          tells what torch dispatches from functions of Python
    operator_of          finds an operator by its name

late_threads   wait_for_threads lets gloo let go of a result before the rank goes on
graphs         operators of captured graphs: what they write, view and draw

    ShapeEnv               holds the symbols that sizes stand for
    free_unbacked_symbols  sizes and numbers that depend on what tensors hold
    NUMBER                 the operator that `item()` is
    names_of, written_by   arguments of an operator, and those that it writes to
    seen_specialisations   notes which code makes a constant of a symbol
    no_backward            calls something else in the place of a backward pass

pipeline       torch's runtime of pipelines

    run_micro_batches    a step of torch's schedule on micro-batches that are split
    takes_any_strides    lets the first stage have samples as they lie: torch 2.11
    cap_in_flight        lets a stage warm up with fewer micro-batches
    standing_buffers     what a stage keeps to receive a micro-batch into: torch < 2.15
    single_process       lets it run as one rank of many, alone, in a process group in
                         which nothing is sent: replay

`plimsoll_profiler.ranks.self_check` replays a toy against real processes and names the
torch version where the two differ.
"""
