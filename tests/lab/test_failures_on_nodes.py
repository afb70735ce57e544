"""Failures in a plan of its own, row by row, on real nodes.

Each test says what it provokes, and looks at what a person sees: conditions with reason
and message, attempts and counts, and that the plan ends as it should. What may fail
around all plans is in test_outages_on_nodes.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.lab.cluster import Cluster
from tests.lab.running import STEPS, Ground, a_ground, condition_of, has_reason

pytestmark = [pytest.mark.nodes, pytest.mark.long, pytest.mark.timeout(600)]

SLOWLY_S = 0.3
"""Of a step, where a test wants to do something meanwhile."""
SMALLER = 0.85
"""Memory that a device really has, as a part of what the plan needs."""
RAISED_AT = 7
SAVED_AT = 5
"""The last checkpoint before that."""
PROFILED_BYTES = 100_000
"""Enough for a sample, and too little for a layer."""
GREEDY_BYTES = 2**31
"""Of the host, for each rank: four times what its pod has for one."""
HUNGRY_BYTES = 900 * 2**20
"""For one rank more than a pod has for two, beside torch; four times that is enough."""
RAISED_MEMORY = re.compile(
    r"with (\d+)Mi of memory for each GPU: (\d+)Mi were too little before"
)


@pytest.fixture(scope="module")
def ground(
    nodes: Cluster, runtime_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ground]:
    """Namespace in which one plan has been profiled, replayed and trained."""
    folder = tmp_path_factory.mktemp("ground")
    with a_ground(nodes, folder, runtime_image) as found:
        found.train_first()
        yield found


@pytest.fixture(scope="module")
def failing(ground: Ground) -> Ground:
    """Start at once all plans that fail by themselves: they wait most of the time."""
    need_bytes = ground.status("first")["plan"]["predictedPeakBytes"]
    ground.order("smaller-train", device_bytes=int(SMALLER * need_bytes))
    for name in ("rehearsed", "stuck"):
        for what in ("rehearsal", "train"):
            order = f"{name}-{what}"
            ground.order(order, device_bytes=int(SMALLER * need_bytes))
    ground.order("full-profile", device_bytes=PROFILED_BYTES)
    ground.order("greedy-train", host_bytes=GREEDY_BYTES)
    ground.order("hungry-train", start_bytes=HUNGRY_BYTES)
    ground.order("broken-train", raise_at=RAISED_AT)
    ground.order("endless-train", pause_s=SLOWLY_S)
    ground.launch("broken", runPolicy={"backoffLimit": 1})
    stays = {"replanOnline": False}
    ground.launch("smaller", runPolicy={"oomReplanLimit": 4} | stays)
    gpus = ground.status("first")["plan"]["gpus"]
    first = ground.plan("any")["spec"]["launch"] | {"rehearse": "Always"}
    ground.launch("rehearsed", launch=first, runPolicy={"oomReplanLimit": 4})
    ground.launch("stuck", launch=first, override={"gpus": gpus})
    ground.launch("greedy", runPolicy={"backoffLimit": 0})
    ground.launch("hungry")
    ground.launch("endless", runPolicy={"runningSeconds": 15})
    ground.launch("fixed", override={"gpus": 1})
    other = {"entrypoint": "steered:workload", "args": {"variant": 1}}
    ground.launch("full", workload=other)
    template = ground.template()
    missing = {"image": "none.invalid/none:1", "imagePullPolicy": "Always"}
    template["spec"]["containers"][0] |= missing
    ground.launch("unpulled", template=template, runPolicy={"pendingSeconds": 45})
    large = {"perGPU": {"cpu": "64", "memory": "512Mi"}}
    ground.launch("unplaced", launch=large, runPolicy={"pendingSeconds": 10})
    return ground


def test_a_device_that_is_full_while_profiling(failing: Ground) -> None:
    """Ends the plan before anything is planned, with what was asked for."""
    status = failing.ended("full")
    for kind in ("Profiled", "Succeeded"):
        state, reason, message = condition_of(status, kind)
        assert (state, reason) == ("False", "ProfileOOM")
        assert "memory" in message
    assert status["attempt"] == 0


def test_a_fixed_plan_that_does_not_fit(failing: Ground) -> None:
    """Is launched with a warning, runs out of memory once, and is not planned anew."""
    status = failing.ended("fixed")
    assert condition_of(status, "Planned")[1] == "Overridden"
    assert "does not fit" in condition_of(status, "Planned")[2]
    state, reason, message = condition_of(status, "Succeeded")
    assert (state, reason) == ("False", "GPUOutOfMemory")
    assert "out of device memory" in message
    fewest = failing.status("first")["plan"]["gpus"]
    assert message.endswith(f"without it {fewest} GPUs are proven to be the fewest")
    assert (status["attempt"], status["failures"]["outOfMemory"]) == (1, 1)


def test_a_device_with_less_than_it_says_is_planned_around(failing: Ground) -> None:
    """Another plan is found, replayed and trained, from where the first one came to."""
    status = failing.ended("smaller")
    assert condition_of(status, "Succeeded")[:2] == ("True", "Trained")
    assert status["failures"]["outOfMemory"] >= 1
    assert status["attempt"] == 1 + status["failures"]["outOfMemory"]
    assert status["plan"]["digest"] != failing.status("first")["plan"]["digest"]
    assert set(failing.steps(f"smaller-train-{status['attempt']}")) == set(range(STEPS))


def test_a_device_with_less_than_it_says_is_found_by_a_rehearsal(
    failing: Ground,
) -> None:
    """In a pod of its own, before any attempt: the first one trains by what fits."""
    status = failing.ended("rehearsed")
    assert condition_of(status, "Succeeded")[:2] == ("True", "Trained")
    state, reason, message = condition_of(status, "Certified")
    assert (state, reason) == ("True", "Rehearsed")
    assert "alone on a device, predicted" in message
    assert (status["attempt"], status["failures"]["outOfMemory"]) == (1, 0)
    assert set(failing.steps("rehearsed-train-1")) == set(range(STEPS))


def test_a_fixed_plan_that_runs_out_when_rehearsed(failing: Ground) -> None:
    """Is not launched at all; the message has the bytes, and what to do."""
    status = failing.ended("stuck")
    for kind in ("Certified", "Succeeded"):
        state, reason, message = condition_of(status, kind)
        assert (state, reason) == ("False", "RehearsalOOM")
        assert re.search(r"ran out of memory in [a-z-]+, alone on a device: ", message)
        assert "what spec.override fixes is not planned around" in message
    assert status["attempt"] == 0


def test_a_rank_that_takes_too_much_of_the_host(failing: Ground) -> None:
    """Is killed by the kernel; the supervisor lives to report whose memory it was."""
    status = failing.ended("greedy")
    state, reason, message = condition_of(status, "Succeeded")
    assert (state, reason) == ("False", "HostOOMKilled")
    assert "killed by the kernel" in message
    assert status["failures"] == {"application": 1, "disruption": 0, "outOfMemory": 0}


def test_a_rank_that_took_too_much_of_the_host_gets_more(failing: Ground) -> None:
    """Its pod then asks for more, as far as the node has it, and the plan goes on.

    At first it asks for what the plan predicts, as the pod of an equal plan does, in
    which all GPUs are.
    """
    status = failing.ended("hungry")
    assert condition_of(status, "Succeeded")[:2] == ("True", "Trained")
    assert status["attempt"] == 1 + status["failures"]["application"] > 1
    found = RAISED_MEMORY.fullmatch(condition_of(status, "Launched")[2])
    assert found is not None
    raised_mib, before_mib = map(int, found.groups())
    gpus = failing.status("first")["plan"]["gpus"]
    assert before_mib * gpus == memory_mib(failing, "first-train-1")
    most_mib = before_mib * 2 ** status["failures"]["application"]
    assert 512 < before_mib < raised_mib <= most_mib


def memory_mib(ground: Ground, job: str) -> int:
    """Memory of the host that the pod of a Job may take."""
    found = ground.cluster.get("job", job, namespace=ground.namespace)
    [container] = found["spec"]["template"]["spec"]["containers"]
    return int(container["resources"]["limits"]["memory"]) // 2**20


def test_an_error_of_the_application(failing: Ground) -> None:
    """Is tried again from the last checkpoint; then the line that raised is shown."""
    status = failing.ended("broken")
    state, reason, message = condition_of(status, "Succeeded")
    assert (state, reason) == ("False", "AppError")
    assert "ValueError: no sample of this step at " in message
    assert "steered.py:" in message
    assert (status["attempt"], status["failures"]["application"]) == (2, 2)
    assert set(failing.steps("broken-train-1")) == set(range(RAISED_AT + 1))
    again = set(failing.steps("broken-train-2"))
    assert again - {0} == set(range(SAVED_AT, RAISED_AT + 1))


def test_a_run_over_its_time(failing: Ground) -> None:
    """Is asked to save, and ends the plan; what it saved is there."""
    status = failing.ended("endless")
    assert condition_of(status, "Succeeded")[:2] == ("False", "DeadlineExceeded")
    assert status["attempt"] == 1
    assert sum(status["failures"].values()) == 0


def test_an_image_that_cannot_be_pulled(failing: Ground) -> None:
    """Is reported in the kubelet's words, until the plan has waited for long enough."""
    status = failing.ended("unpulled")
    for kind in ("Profiled", "Succeeded"):
        state, reason, message = condition_of(status, kind)
        assert (state, reason) == ("False", "ProfilePendingTimeout")
        assert "none.invalid/none:1" in message
        assert "ErrImagePull" in message or "ImagePullBackOff" in message


def test_a_pod_that_no_node_has_room_for(failing: Ground) -> None:
    """Is reported in the scheduler's words, until the plan has waited long enough."""
    status = failing.ended("unplaced")
    assert condition_of(status, "Launched")[:2] == ("False", "PendingTimeout")
    state, reason, message = condition_of(status, "Succeeded")
    assert (state, reason) == ("False", "PendingTimeout")
    assert "0/2 nodes are available" in message
    assert "Insufficient cpu" in message
    assert status["attempt"] == 1


def test_an_evicted_pod(failing: Ground) -> None:
    """Saves and leaves, the gang begins again, and that counts against no limit."""
    ground = failing
    ground.order("evicted-train", pause_s=SLOWLY_S)
    ground.launch("evicted", runPolicy={"backoffLimit": 0})
    ground.wait_for_steps("evicted-train-1", RAISED_AT)
    [pod] = ground.pods("evicted-train-1")
    name = pod["metadata"]["name"]
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": ground.namespace},
    }
    path = f"/api/v1/namespaces/{ground.namespace}/pods/{name}/eviction"
    body = json.dumps(eviction)
    ground.cluster.kubectl("create", "--raw", path, "-f", "-", stdin=body)
    ground.order("evicted-train")
    status = ground.ended("evicted")
    assert condition_of(status, "Succeeded")[:2] == ("True", "Trained")
    assert status["attempt"] == 2
    assert status["failures"] == {"application": 0, "disruption": 1, "outOfMemory": 0}
    assert_goes_on(ground, "evicted")


def test_a_pod_that_a_person_deletes(failing: Ground) -> None:
    """Is a disruption as well: the Job of the plan is still wanted."""
    ground = failing
    ground.order("robbed-train", pause_s=SLOWLY_S)
    ground.launch("robbed", runPolicy={"backoffLimit": 0})
    ground.wait_for_steps("robbed-train-1", RAISED_AT)
    [pod] = ground.pods("robbed-train-1")
    ground.delete(f"pod/{pod['metadata']['name']}")
    ground.order("robbed-train")
    status = ground.ended("robbed")
    assert condition_of(status, "Succeeded")[:2] == ("True", "Trained")
    assert (status["attempt"], status["failures"]["disruption"]) == (2, 1)
    assert_goes_on(ground, "robbed")


def test_a_job_that_a_person_deletes(failing: Ground) -> None:
    """Is an error that counts: somebody did not want it."""
    ground = failing
    ground.order("unwanted-train", pause_s=SLOWLY_S)
    ground.launch("unwanted", runPolicy={"backoffLimit": 0})
    ground.wait_for_steps("unwanted-train-1", RAISED_AT)
    ground.delete("job/unwanted-train-1")
    status = ground.ended("unwanted")
    state, reason, message = condition_of(status, "Succeeded")
    assert (state, reason) == ("False", "ChildDeleted")
    assert "unwanted-train-1 was deleted by somebody" in message
    assert status["failures"]["application"] == 1


def test_a_plan_that_is_suspended(failing: Ground) -> None:
    """Saves where it is, gives its devices back, and goes on from there."""
    ground = failing
    ground.order("paused-train", pause_s=SLOWLY_S)
    ground.launch("paused")
    ground.wait_for_steps("paused-train-1", RAISED_AT)
    ground.patch("paused", {"suspend": True})
    status = ground.wait_for("paused", has_reason("Launched", "Suspended"))
    assert condition_of(status, "Succeeded")[0] == "Unknown"
    assert ground.pods("paused-train-1") == []
    ground.order("paused-train")
    ground.patch("paused", {"suspend": False})
    status = ground.ended("paused")
    assert condition_of(status, "Succeeded")[:2] == ("True", "Trained")
    assert status["attempt"] == 2
    assert sum(status["failures"].values()) == 0
    assert_goes_on(ground, "paused", loses=0)


def assert_goes_on(ground: Ground, name: str, *, loses: int = STEPS) -> None:
    """Fail unless the second attempt goes on where the first one came to.

    Args:
        ground: where they ran.
        name: of the plan.
        loses: steps that may be trained twice.
    """
    first, second = (set(ground.steps(f"{name}-train-{number}")) for number in (1, 2))
    began = min(second - {0})
    assert 0 <= max(first) + 1 - began <= max(loses, 1), (first, second)
    assert max(second) == STEPS - 1
