"""The order of operations, on paper."""

from __future__ import annotations

import pytest

from plimsoll_planner.timing.schedule import Pass, in_flight, one_f_one_b


def test_three_stages_and_four_micro_batches() -> None:
    """The table of the module's text."""
    lines = [" ".join(map(str, one_f_one_b(stage, 3, 4))) for stage in range(3)]
    assert lines == [
        "F0 F1 F2 B0 F3 B1 B2 B3",
        "F0 F1 B0 F2 B1 F3 B2 B3",
        "F0 B0 F1 B1 F2 B2 F3 B3",
    ]


@pytest.mark.parametrize("num_stages", range(1, 9))
@pytest.mark.parametrize("num_micro_batches", [1, 2, 3, 7, 8, 16])
def test_in_flight_is_min_of_m_and_stages_left(
    num_stages: int, num_micro_batches: int
) -> None:
    """Counted op by op: forward passes not yet answered are at most min(M, P - s)."""
    for stage in range(num_stages):
        open_now = most = 0
        seen: set[tuple[Pass, int]] = set()
        for operation in one_f_one_b(stage, num_stages, num_micro_batches):
            open_now += 1 if operation.kind is Pass.FORWARD else -1
            most = max(most, open_now)
            if operation.kind is Pass.BACKWARD:
                assert (Pass.FORWARD, operation.micro_batch) in seen
            seen.add((operation.kind, operation.micro_batch))
        assert len(seen) == 2 * num_micro_batches
        assert open_now == 0
        assert most == min(num_micro_batches, num_stages - stage)
        assert most == in_flight(stage, num_stages, num_micro_batches)
