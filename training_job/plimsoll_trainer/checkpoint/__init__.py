"""Checkpoints that resume under any other plan, and survive a crash at any moment.

    step-00000050/                    committed: only these are read
        __0_0.distcp ...              tensors, one file for each rank that saves any
        .metadata                     which tensor lies where
        manifest.json                 step, identity, sizes and checksums; written last
    step-00000100.partial-2/          being written by attempt 2
    step-00000150.aside-2/            later than what attempt 2 resumed from
    .attempt-2                        attempt 2 has taken over from older ones

The files are those of torch.distributed.checkpoint, so its tools read them. Names do
not depend on the plan (`state`); each rank saves what no other one does and reads what
it holds, of tensors that replicas divide some of their numbers.

    flat_range   numbers of a tensor, as boxes that torch's checkpoints know
    planners     which boxes are written, and which are read
    state        tensors of a rank by name
    host_copy    tensors of a rank in host memory, where a device may go on
    manifest     step, identity and files of a checkpoint
    folders      what may be read, what is in the way, what is too old
    room         whether a failed save lacked room, and how to wait for it
    loader       chooses, checks and reads
    saved_state  the state of a rank, whatever engine holds it
    saver        writes in the background, commits by rename
    exported     trained weights out of a checkpoint, in the model's own format
"""
