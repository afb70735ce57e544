"""The processes that probe: layers on a device or on none, operators on one.

messages            what they and the profiler write to each other
cases               which layers are alike
split_check         a split layer against the whole one, on real ranks
tensor_groups       layers as one rank of a tensor group has them
few_pieces          pieces of a loss that stand for all of them
layer_probe         one layer in its place
pass_costs          bytes and work of a layer by way to run
layer_timing        seconds of layers that take turns
optimizer_steps     what steps of an optimizer keep, and hold on top
host_steps          seconds of such a step in the memory of the host
divided_state       the same by numbers, where replicas divide it
layer_state         what a layer holds whatever the micro-batch; what ties share
batch_statistics    whether samples of a micro-batch depend on one another
prober              the process of layers, started by `plimsoll_profiler.start`
grapher             the process of operators, started likewise
"""
