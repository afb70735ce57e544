"""Every manifest in examples/, run by the command that it names, to its end.

As they stand at night; for each change the transformers train for fewer steps, which
are most of what they cost. Two run at a time, each in a home of its own; tests wait for
the one that they are about. What a manifest says of its outcome is checked here.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import sys
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip("torch")

from plimsoll_cli.errors import ExitCode
from plimsoll_operator.api.status import ConditionType, Status
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_operator.store.store import open_store
from plimsoll_planner.records.certificate import Certificate
from plimsoll_planner.records.plan import HybridPlan
from tests.support.drawing import CHOSEN
from tests.support.home_runs import Ended, HomeRun
from tests.support.make import make

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
NAMES = (
    "llama-70b",
    "own-module",
    "override",
    "shared-layer",
    "offload",
    "two-towers",
    "tiny-gpt",
    "tiny-llama",
    "llama-8b",
    "cheapest",
)
"""The longest first."""
NIGHTLY = {"llama-70b", "cheapest", "shared-layer", "offload", "tiny-llama"}
"""`llama-8b` and the fine-tune stand for other large and small models of transformers,
which cost as much again or ten times as much; tests of the planner hold the cheapest,
and with those of the trainer both halves of the rest."""
QUICKSTART = "tiny-gpt"
SHARED_HOME = {"override": "own-module"}
"""Of one model: its profile is made once."""
TRAINED = ("tiny-gpt", "tiny-llama")
STEPS, FEWER_STEPS = 60, 10
"""Of those that train long, in their manifests and for each change."""
AT_A_TIME = 2
LARGE = ("llama-70b", "llama-8b", "cheapest")
"""Planned alone, with a grid of other counts at night: that is searched for seconds."""
NO_DEVICES = ("--output", "json")
"""If the manifest lists its machines; a `HomeRun` without options names devices."""
STATE_BYTES_PER_PARAMETER = 16
"""AdamW in mixed precision: parameter 2, gradient 2, master copy 4, moments 8."""
MOST_OVER_STATE = 1.1
"""Activations, overhead and uneven stages, at one sample at a time."""
MOST_ERROR_PERCENT = Decimal(1)


@dataclass(frozen=True)
class Example:
    """One manifest, its home and how its command ended."""

    run: HomeRun
    ended: Ended
    name: str

    @property
    def status(self) -> Status:
        """Last status."""
        return self.ended.status

    def message(self, condition: ConditionType) -> str:
        """Message of a condition."""
        found = self.status.condition(condition)
        assert found is not None
        return found.message

    def plan(self) -> HybridPlan:
        """Of the latest attempt."""
        uid = self.stored().uid

        async def find() -> HybridPlan:
            async with open_store(self.run.home.store) as store:
                attempts = await store.attempts.of(uid)
            return attempts[-1].plan

        return asyncio.run(find())

    def cuts(self) -> list[int]:
        """First layer of each stage of the latest attempt."""
        return [stage.chunks[0].first_layer for stage in self.plan().stages]

    def certificate(self) -> Certificate:
        """Whole certificate of the latest question."""
        uid = self.stored().uid

        async def find() -> Certificate:
            async with open_store(self.run.home.store) as store:
                asked = await store.questions.of(uid)
                found = await store.answers.find(asked[0].digest)
            assert found is not None
            return found.answer.certificate

        return asyncio.run(find())

    def stored(self) -> StoredPlan:
        """Plan as the store has it."""
        plan = self.run.plan(self.name)
        assert plan is not None
        return plan


def options_of(name: str) -> tuple[str, ...]:
    """Options of the command in a manifest's comment."""
    text = (ROOT / f"examples/{name}.yaml").read_text()
    found = re.search(rf"^#   plimsoll run examples/{name}\.yaml(.*)$", text, re.M)
    assert found is not None, f"examples/{name}.yaml: names no command"
    return tuple(shlex.split(found[1]))


def run_example(name: str, folder: Path, options: tuple[str, ...]) -> Example:
    """Run a manifest as it stands, from the root of the project."""
    folder.mkdir(exist_ok=True)
    run = HomeRun(folder)
    shutil.copy(ROOT / f"examples/{name}.yaml", run.manifest)
    shorten(name, run.manifest)
    has_grid = name not in LARGE or CHOSEN == "nightly"
    more = () if has_grid else ("--no-grid",)
    return Example(run, run.run(*options or NO_DEVICES, *more), name)


def shorten(name: str, manifest: Path) -> None:
    """Let a model train for fewer steps, unless tests search as hard as at night."""
    if name in TRAINED and CHOSEN != "nightly":
        text = manifest.read_text()
        assert text.count(f"    steps: {STEPS}\n") == 1
        fewer = f"    steps: {FEWER_STEPS}\n"
        manifest.write_text(text.replace(f"    steps: {STEPS}\n", fewer))


def run_quickstart(folder: Path) -> Example:
    """Run `make quickstart`, all but the installation, where it never ran before."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    shorten(QUICKSTART, folder / f"examples/{QUICKSTART}.yaml")
    shutil.copy(ROOT / "Makefile", folder)
    program = f"BIN={Path(sys.executable).parent}"
    ended = make("-o", "env-local", "quickstart", program, cwd=folder)
    run = HomeRun(folder)
    run.home.root.symlink_to(folder / "build/quickstart")
    plan = run.plan(QUICKSTART)
    assert plan is not None, ended.stderr
    status = json.dumps(plan.status.to_json())
    return Example(run, Ended(ended.returncode, status, ended.stderr), QUICKSTART)


@pytest.fixture(scope="module")
def futures(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[dict[str, Future[Example]]]:
    """All runs that selected tests are about, under way or done."""
    is_night = any(one.get_closest_marker("nightly") for one in request.session.items)
    root = tmp_path_factory.mktemp("examples")
    found: dict[str, Future[Example]] = {}

    def start(name: str) -> Example:
        if before := SHARED_HOME.get(name):
            found[before].result()
        if name == QUICKSTART:
            return run_quickstart(root / name)
        return run_example(name, root / SHARED_HOME.get(name, name), options_of(name))

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for name in NAMES:
            if name not in NIGHTLY or is_night:
                found[name] = pool.submit(start, name)
        yield found


def done(futures: dict[str, Future[Example]], name: str) -> Example:
    """Wait for a run, which must have come to a good end."""
    example = futures[name].result()
    assert example.ended.code == ExitCode.DONE, example.ended.err
    assert example.status.holds(ConditionType.CERTIFIED)
    assert example.status.holds(ConditionType.SUCCEEDED)
    return example


def require_trained(example: Example) -> None:
    """Every step has a loss, the last ones are lower, and the peak was foretold."""
    losses = example.run.losses(example.name)
    steps = example.stored().spec.training.steps
    assert sorted(losses) == list(range(1, steps + 1))
    last = [losses[step] for step in range(steps - 4, steps + 1)]
    assert max(last) < losses[1]
    assert example.status.observed is not None
    assert example.status.observed.error_percent < MOST_ERROR_PERCENT


@pytest.mark.parametrize(
    "name",
    [
        *(QUICKSTART, "own-module", "two-towers"),
        pytest.param("tiny-llama", marks=pytest.mark.nightly),
    ],
)
def test_a_model_trains_on_the_fewest_devices(
    name: str, futures: dict[str, Future[Example]]
) -> None:
    """More than one, as one fewer is proven not to do; and the loss falls."""
    example = done(futures, name)
    assert example.status.plan is not None
    assert example.status.certificate is not None
    assert example.status.plan.gpus > 1
    assert example.status.certificate.smaller_gpus == example.status.plan.gpus - 1
    assert example.status.certificate.verdict == "fails"
    assert example.certificate().is_proof
    require_trained(example)


def test_operators_are_placed_one_by_one(futures: dict[str, Future[Example]]) -> None:
    """Every device has some, and the report shows what each holds over a step."""
    example = done(futures, "two-towers")
    placement = example.plan().placement
    assert placement is not None
    assert set(placement.devices) == {0, 1}
    report = example.run.home.root.glob("plans/*/report.html")
    assert "is the fullest" in next(report).read_text()


def test_the_quickstart_writes_its_report(futures: dict[str, Future[Example]]) -> None:
    """At the place that it names, in a folder that was not there before."""
    example = done(futures, QUICKSTART)
    assert (example.run.folder / "build/quickstart.html").is_file()


def test_what_a_program_reads_holds_losses_and_proof(
    futures: dict[str, Future[Example]],
) -> None:
    """All losses, and why each smaller count fails."""
    example = done(futures, "own-module")
    printed = json.loads(example.ended.out)
    losses = {step["step"]: step["loss"] for step in printed["losses"]}
    assert losses == example.run.losses(example.name)
    assert printed["proof"]["isProof"]
    counts = {count["gpus"]: count for count in printed["proof"]["counts"]}
    assert example.status.plan is not None
    assert [*counts] == list(range(1, example.status.plan.gpus + 1))
    below = counts[example.status.plan.gpus - 1]
    assert below["verdict"] == "fails"
    assert below["reason"]


def test_the_exact_cut_differs_from_the_even_one(
    futures: dict[str, Future[Example]], tmp_path: Path
) -> None:
    """14 layers: 5 and 9 fit where 7 and 7 do not."""
    exact = done(futures, "own-module")
    assert exact.cuts() == [0, 5]
    even = done(futures, "override")
    assert even.cuts() == [0, 7]
    run = even.run.copy(tmp_path)
    tight = Example(run, run.run(*options_of("own-module")), "override")
    assert "what is fixed does not fit: rank 0, backward" in tight.message(
        ConditionType.PLANNED
    )
    assert tight.cuts() == [0, 7]
    assert tight.ended.code == ExitCode.FAILED
    assert tight.status.attempt == 1
    ending = tight.status.condition(ConditionType.SUCCEEDED)
    assert ending is not None
    assert ending.reason == "GPUOutOfMemory"


@pytest.mark.nightly
def test_a_layer_that_no_device_holds_is_shared(
    futures: dict[str, Future[Example]], tmp_path: Path
) -> None:
    """Two devices train it; without a tensor degree both answers name the layer."""
    shared = done(futures, "shared-layer")
    assert [stage.variant.tensor_degree for stage in shared.plan().stages] == [2]
    require_trained(shared)
    run = shared.run.copy(tmp_path)
    text = run.manifest.read_text()
    named = "which layer 'middle.0' alone exceeds"
    one = "  launch: {policy: PlanOnly}\n  override: {tensor: 1}\n  training:"
    run.manifest.write_text(text.replace("  training:", one))
    fixed = Example(run, run.run(*options_of("shared-layer")), "shared-layer")
    assert named in fixed.message(ConditionType.PLANNED)
    run.manifest.write_text(text.replace(", shared: true", ""))
    whole = Example(run, run.run(*options_of("shared-layer")), "shared-layer")
    assert whole.ended.code == ExitCode.NO_PLAN
    assert named in whole.message(ConditionType.PLANNED)


@pytest.mark.nightly
def test_activations_that_no_device_holds_wait_on_the_host(
    futures: dict[str, Future[Example]], tmp_path: Path
) -> None:
    """One device trains it; without offloading it runs out of memory, as predicted."""
    offload = done(futures, "offload")
    assert all(stage.offloaded_layers for stage in offload.plan().stages)
    require_trained(offload)
    run = offload.run.copy(tmp_path)
    text = run.manifest.read_text()
    fixed = "  override: {offloadedLayers: []}\n  training:"
    run.manifest.write_text(text.replace("  training:", fixed))
    kept = Example(run, run.run(*options_of("offload")), "offload")
    assert "does not fit" in kept.message(ConditionType.PLANNED)
    assert kept.ended.code == ExitCode.FAILED


def test_what_is_fixed_is_obeyed_where_it_fits(
    futures: dict[str, Future[Example]],
) -> None:
    """It trains, and is not sold as the fewest of all."""
    example = done(futures, "override")
    message = example.message(ConditionType.PLANNED)
    assert "(within what is fixed by hand)" in message
    assert "does not fit" not in message
    require_trained(example)


@pytest.mark.parametrize(
    ("name", "billions", "product", "gpus", "num_undecided"),
    [
        ("llama-8b", 8.03, "H100-80GB", 2, 0),
        pytest.param(
            *("llama-70b", 70.55, "B200-180GB", 8, 1), marks=pytest.mark.nightly
        ),
    ],
)
def test_a_large_llama_is_planned_without_a_gpu(
    name: str,
    billions: float,
    product: str,
    gpus: int,
    num_undecided: int,
    futures: dict[str, Future[Example]],
) -> None:
    """Its state alone fills the devices; nodes and price are shown.

    Of the 70B one fewer is undecided until what such devices hold besides tensors is
    measured.
    """
    example = done(futures, name)
    plan, certificate = example.status.plan, example.status.certificate
    assert plan is not None
    assert certificate is not None
    assert (plan.product, plan.gpus, plan.nodes) == (product, gpus, 1)
    assert certificate.verdict == ("undecided" if num_undecided else "fails")
    state_bytes = billions * 1e9 * STATE_BYTES_PER_PARAMETER
    assert (
        gpus - 1 - num_undecided
    ) * plan.capacity_bytes < MOST_OVER_STATE * state_bytes
    assert gpus * plan.predicted_peak_bytes > state_bytes
    message = example.message(ConditionType.PLANNED)
    assert f"{plan.hourly_cost:.2f} USD/h; 1000 steps: " in message
    idle = "" if gpus == 8 else f" of 8 GPUs: 8 paid for, {gpus} used"
    assert f": 1 node{idle}, " in message


@pytest.mark.nightly
def test_the_cheapest_is_not_the_fewest(futures: dict[str, Future[Example]]) -> None:
    """A whole node of 8 is done so much sooner that one GPU of it costs more."""
    example = done(futures, "cheapest")
    assert example.status.plan is not None
    assert (example.status.plan.gpus, example.status.plan.nodes) == (8, 1)
    message = example.message(ConditionType.PLANNED)
    bills = re.findall(r"2000 steps: [^,]+, ([0-9.]+) USD", message)
    cheapest, fewest = map(Decimal, bills)
    assert "; on 1 GPU: 2000 steps: " in message
    assert cheapest < fewest / 5


def test_a_plan_that_is_known_is_told_at_once(
    futures: dict[str, Future[Example]],
) -> None:
    """A second run profiles and replays nothing, and says the same."""
    first = done(futures, "llama-8b")
    again = run_example("llama-8b", first.run.folder, ())
    assert again.ended.code == ExitCode.DONE
    assert again.status.profile is not None
    assert again.status.profile.is_cached
    planned = ConditionType.PLANNED
    assert again.message(planned) == first.message(planned)
