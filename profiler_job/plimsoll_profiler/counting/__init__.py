"""Counters of bytes and work.

flop_formulas       what torch's table of FLOPs lacks
uncounted_work      operators without a formula, and what they may do
work_counter        FLOPs and bytes moved
cuda_autocast       what autocast of a GPU runs in fp32
operator_policy     the operators of a GPU, on fake tensors
kernel_workspaces   what kernels of the emulated device allocate inside
gloo_scratch        what collectives of the emulated device allocate inside
live_bytes          bytes of live fake tensors
meters              where something runs, and what counts its bytes there
"""
