"""The engine: what the ranks of a job compute in a step, and how they agree.

It knows nothing of options, plans, devices, files or processes. Reading order is import
order:

    wrapped_modules     modules whose memory cannot be foreseen, refused
    tensor_specs        shape and type of a tensor
    batches             samples of a workload, made and checked
    split_tensors       parameters of which each rank of a tensor group has a part
    gradients           gradients of a layer in one piece of memory
    sharded_optimizer   an optimizer of pieces of parameters
    elementwise         whether an optimizer may be divided; its bytes for each number
    flat_buffers        what a replica owns of a layer, or all of it
    tensor_sums         by which ranks see whether they hold the same
    collectives         exchange of slices, in place
    carried_values      values on their way past layers, and their gradients
    gathered_layers     layers that are whole while they are at work alone
    token_pieces        the last layer and its loss, a few tokens at a time
    host_link           copies between a device and the host's memory
    offloaded_layers    layers whose activations are there between their passes
    tied_tensors        what layers of one rank share
    autocast            layers that compute in a smaller type than their parameters
    built_layer         one layer, with its parameters laid out
    layer_runs          one layer in a pass, with the loss behind the last
    loss_scale          what a loss is multiplied with, where gradients are in fp16
    stage               the layers of one rank
    layer_forms         whether a layer takes and returns what it declares
    loss_checks         whether layers could learn from a loss
    learned             parameters that no gradient comes back to
    boundaries          what passes between them
    evaluation_samples  a sample of other data, compared with those of training
    host_bytes          what optimizers on the host will take there
    layer_optimizer     one optimizer for each layer
    host_optimizer      an optimizer in the host's memory
    trained_layer       gradients and optimizer of a layer in a step
    world               the ranks of a job and their groups
    shared_tensors      parameters that layers on different ranks share
    pass_timing         seconds of a rank in its passes
    loading             samples of a rank, made when needed or ahead
    counting_stage      torch's stage and schedule of one rank
    training            a step of one rank: schedule, gradients, optimizer
    evaluating          passes forward alone: the loss on other data
    migration           layers that go to another stage between two steps
    control             what the hosts of all ranks agree on between two steps
    equal_replicas      digests of what replicas hold, before the first step
"""
