"""Bytes assumed on a GPU besides tensors until a rank on it was measured.

In: nothing. Out: `OUTSIDE`, `ALLOCATOR` and `SHARE_PERMILLE`. Called by `allowance`
and by the calibration. Emulated devices count tensors; nothing is assumed of them.

    lower bound   0, so what fails fails even if nothing but tensors takes memory
    upper bound   covers what is published of engines that keep whole layers on a rank

Where the numbers come from; c is how many groups of ranks a rank talks in:

    outside the allocator: expected 1 GiB + 1 GiB c, at most 3.5 GiB + 2 GiB c
      context of CUDA    0.27 GiB with a first tensor          pytorch/pytorch#86509
                         0.40 and 0.42 GiB                     awslabs/keys_values#92,
                                                               unslothai/unsloth-zoo#1053
                         1.79 GiB with libraries, 1 GPU        vllm-project/vllm#10511
      one group          0.51 and 0.64 GiB, 4 A100             NVIDIA/nccl#964
                         1.5 GiB with the context              NVIDIA/nccl#864
                         1.79 GiB more on 2 GPUs than on 1     vllm-project/vllm#10511
      three or more      5.6 GiB                               NVIDIA/nccl#864
      5.8 to 7.3 GiB in one thread; how many ranks and groups there were is not known,
      so the upper bound covers it from two groups on, and not at one

    inside the allocator: expected 0.5 GiB + 4 %, at most 1 GiB + 12 % of the tensors
      rows of five engines: 0.6 to 18 % of 7 to 167 GiB; the largest are 18 % of
      15 GiB, 11 % of 65 GiB and 12 % of 128 GiB

`tests/planner/overhead/public_overheads.csv` has the rows, and the test beside it says
how many of them are inside. Not covered is fine-tuning on lengths that vary, and layers
that are gathered again for each pass: there torch has reserved up to twice what was
allocated. Plimsoll's trainer does neither, and sets expandable segments against it.
"""

from __future__ import annotations

from plimsoll_planner.records.device_overhead import OverheadLine

OUTSIDE = OverheadLine(
    constant_bytes=2**30,
    bytes_per_communicator=2**30,
    residual_bytes=3 * 2**28,
    relative_error=1.0,
)
"""Context, communicators, workspaces of libraries."""
ALLOCATOR = OverheadLine(constant_bytes=2**29, relative_error=1.0)
"""Rounding and fragments that do not depend on how much is allocated."""
SHARE_PERMILLE = (0, 40, 120)
"""Of the allocated bytes, for those that do: lower, expected, upper."""
