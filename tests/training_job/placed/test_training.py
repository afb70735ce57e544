"""Placed training: the numbers of one process, and the bytes of the planner's curve."""

from __future__ import annotations

from functools import partial

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist

from plimsoll_planner.graph.curve import Curve
from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.errors import PlanMismatchError
from plimsoll_trainer.placed.capture import capture_evaluation
from plimsoll_trainer.placed.training import PlacedTrainer
from tests.support.branching import (
    SAMPLES,
    Run,
    branching,
    from_first,
    loss_of_others,
    measured_profile,
    on_one_device,
    placed_at_random,
    run_eagerly,
    run_placed,
    steps_of,
)
from tests.support.ranks import Died, run_ranks, try_ranks

NUM_STEPS = 3
DEVICES = {
    "towers": 2,
    "u-net": 3,
    "pair": 5,
    "mixture": 3,
    "batch norm": 2,
    "dropout": 3,
    "gaps": 2,
    "turned": 3,
    "one channel": 2,
    "products": 3,
    "own operator": 2,
}


def run_both(name: str) -> tuple[Run, list[Run]]:
    """A model by autograd alone, and under five placements."""
    workload = branching(name)
    eager = from_first(partial(run_eagerly, workload, NUM_STEPS))
    return eager, run_placed(workload, NUM_STEPS, evaluates=evaluates(name))


def evaluates(name: str) -> bool:
    """Whether a model is evaluated after its last step."""
    return name == "batch norm"


@pytest.mark.slow
@pytest.mark.parametrize("name", DEVICES)
def test_a_placement_changes_no_bit_and_holds_what_was_predicted(name: str) -> None:
    """Losses and norms are those of one process, peaks those of the curve, to a byte.

    What draws random numbers, or is laid otherwise by kernels than it was captured, has
    the losses that it has on one placed device. A product of matrices that were sent
    without their gaps differs in the last bits.
    """
    ranks = run_ranks(run_both, DEVICES[name], name)
    eager, [alone, *_] = ranks[0]
    assert alone.losses == pytest.approx(eager.losses, rel=1e-6) or name == "dropout"
    expected = alone if name in {"dropout", "one channel"} else eager
    error = 1e-6 if name == "products" else 0.0
    for _, runs in ranks:
        for run in runs:
            assert run.losses == pytest.approx(expected.losses, rel=error, abs=0)
            assert run.norms == pytest.approx(expected.norms, rel=error, abs=0)
            assert run.evaluated == (eager.evaluated if evaluates(name) else None)
            # The optimizer has made its state in the first step.
            assert run.peaks[1:] == [run.predicted] * (NUM_STEPS - 1)
            assert run.peaks[0] <= run.predicted
    assert len(set(expected.losses)) == NUM_STEPS


def run_capped() -> None:
    """Train with as much memory as was predicted, then rank 0 with a byte less.

    Raises:
        AssertionError: memory ran out, with how much there was beyond the prediction.
    """
    workload = branching()
    graph, profile = measured_profile(workload)
    world = join_world(dist.get_world_size(), 1, torch.device("cpu"))
    placed = placed_at_random(profile, world.num_stages, 0)
    most = int(Curve(placed).peak[world.stage])
    device = EmulatedDevice()
    device.leave_out()
    for cap in (most, most - (world.stage == 0)):
        device.set_cap(cap)
        try:
            steps_of(workload, graph, profile, placed, world, 2)
        except RuntimeError as error:
            raise AssertionError(f"{cap - most} bytes: {error}") from None


@pytest.mark.slow
def test_the_predicted_peak_is_enough_and_a_byte_less_is_not() -> None:
    """A device of the predicted size trains; of one byte less it runs out of memory."""
    first, _ = try_ranks(run_capped, [0, 0])
    assert isinstance(first, Died)
    assert first.text.startswith("AssertionError: -1 bytes")
    assert "allocate memory" in first.text


def run_in_parts() -> list[list[float]]:
    """The same global batch over two replicas, and in two micro-batches."""
    workload = branching("dropout")
    graph, profile = measured_profile(workload)
    found = []
    for num_devices, num_replicas, num_micro_batches in ((2, 2, 1), (4, 1, 2)):
        trainer = PlacedTrainer(
            workload,
            graph,
            profile=profile,
            placed=placed_at_random(profile, num_devices, 1),
            world=join_world(num_devices, num_replicas, torch.device("cpu")),
            micro_batch=SAMPLES,
            num_micro_batches=num_micro_batches,
        )
        steps = [trainer.run_step(step) for step in range(2)]
        found.append([float(x) for one in steps for x in (one.loss, one.gradient_norm)])
    return found


@pytest.mark.slow
def test_replicas_and_micro_batches_train_alike() -> None:
    """Two replicas of one micro-batch have the bits of one replica of two."""
    for replicas, micro_batches in run_ranks(run_in_parts, 4):
        assert replicas == micro_batches
        assert replicas[0] != replicas[2]


def evaluate_replicas() -> tuple[float, float]:
    """Two replicas: what they find together, and a part that one has gathered."""
    workload = branching("batch norm")
    graph, profile = measured_profile(workload)
    trainer = PlacedTrainer(
        workload,
        graph,
        profile=profile,
        placed=on_one_device(profile, 1),
        world=join_world(1, 2, torch.device("cpu")),
        micro_batch=SAMPLES,
    )
    trainer.run_step(0)
    evaluation = from_first(partial(capture_evaluation, workload, SAMPLES))
    [mean] = (s.tensor for s in trainer.states if s.name == "norms.0.running_mean")
    return loss_of_others(trainer, evaluation, 3 * SAMPLES), float(mean.sum())


@pytest.mark.slow
def test_replicas_of_other_statistics_find_the_same_loss() -> None:
    """They take turns with micro-batches, so early stops are the same on all ranks."""
    (loss, gathered), (other, others_gathered) = run_ranks(evaluate_replicas, 2)
    assert gathered != others_gathered
    assert loss == other > 0


def place_for_more() -> str:
    """Begin a placement for two devices on one rank."""
    workload = branching("mixture")
    graph, profile = measured_profile(workload)
    with pytest.raises(PlanMismatchError) as raised:
        PlacedTrainer(
            workload,
            graph,
            profile=profile,
            placed=on_one_device(profile, 2),
            world=join_world(1, 1, torch.device("cpu")),
            micro_batch=SAMPLES,
        )
    return str(raised.value)


@pytest.mark.slow
def test_a_placement_for_other_ranks_is_refused() -> None:
    """It names both numbers before anything is built."""
    [text] = run_ranks(place_for_more, 1)
    assert "for 2 devices" in text
    assert "has 1 ranks" in text
