"""From a manifest to a trained model: built images and the chart, and nothing else.

`helm install`, `kubectl apply -f examples/tiny-gpt.yaml`, and nobody helps: profile,
search, replay, and a gang of real containers over gloo. Once with SQLite on a volume,
once with PostgreSQL, where the ranks are spread over several pods. The tests look at
one training from several sides; what they ask Prometheus is asked of a real one that
scrapes the operator's Service.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll_operator.api.status import ConditionType
from plimsoll_operator.names import GPU_RESOURCE, PLAN_LABEL, TASK_LABEL
from tests.lab import gpus
from tests.lab.cluster import Cluster
from tests.lab.gpus import Gpus
from tests.lab.installed import DEFINITION, NAME, Installed, installed
from tests.support.postgresql import OpenTo, a_server
from tests.support.prometheus import EXPRESSIONS, RULES, ask, filled_in, scraping

pytestmark = [pytest.mark.nodes, pytest.mark.long, pytest.mark.timeout(900)]

MANIFEST = Path(__file__).parents[2] / "examples" / "tiny-gpt.yaml"
PLAN = "tiny-gpt"
LIMIT_S = 360.0
"""From nothing in the cluster to a trained model."""
DEVICE_MIB = 64
DEVICES_PER_NODE = {"sqlite": 4, "postgresql": 2}
"""Three devices are needed: in one pod, or in several."""
MOST_ERROR = 0.05
"""Of a prediction."""
UNPRICED = "Cost per hour: A"
"""Line that emulated devices have no value for."""
ENDLESS_STEPS = 100_000


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A training that has come to its end, and what can be asked about it."""

    database: str
    release: Installed
    namespace: str
    prometheus: str
    """Its address."""
    took_s: float

    def plan(self, name: str = PLAN) -> dict[str, Any]:
        """TrainingPlan as it is now."""
        cluster = self.release.cluster
        return cluster.get("tplan", name, namespace=self.namespace)

    def selects(self, metric: str) -> list[Any]:
        """Series of the training's plan."""
        labels = f'{{namespace="{self.namespace}",trainingplan="{PLAN}"}}'
        return ask(self.prometheus, f"trainingplan_{metric}{labels}")


@pytest.fixture(scope="module", params=DEVICES_PER_NODE)
def trained(
    request: pytest.FixtureRequest,
    release_nodes: Cluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Trained]:
    """Install the operator and train by the example as it stands."""
    database, nodes = request.param, release_nodes
    for node in nodes.nodes:
        count = DEVICES_PER_NODE[database]
        gpus.pretend(nodes, node, Gpus(count=count, memory_mib=DEVICE_MIB))
    with ExitStack() as stack:
        address = stack.enter_context(an_address(nodes, database))
        started_s = time.monotonic()
        release = stack.enter_context(installed(nodes, database=address))
        namespace = stack.enter_context(nodes.fresh_namespace())
        nodes.kubectl("apply", "--filename", str(MANIFEST), "-n", namespace)
        release.wait_for(
            namespace, PLAN, ConditionType.SUCCEEDED, timeout_s=2 * LIMIT_S
        )
        took_s = time.monotonic() - started_s
        folder = tmp_path_factory.mktemp("prometheus")
        prometheus = stack.enter_context(scraping(release.metrics, folder))
        yield Trained(
            database=database,
            release=release,
            namespace=namespace,
            prometheus=prometheus,
            took_s=took_s,
        )


def an_address(cluster: Cluster, database: str) -> AbstractContextManager[str]:
    """Address of a new database that pods reach; none for SQLite."""
    return nullcontext("") if database == "sqlite" else a_database(cluster)


@contextmanager
def a_database(cluster: Cluster) -> Iterator[str]:
    """Run a PostgreSQL on this machine; yield the address of a database in it."""
    slot = cluster.slot
    with a_server(OpenTo(host=slot.host_address, clients=str(slot.pods))) as server:
        yield server.url_for_clients(server.make())


def a_plan(name: str, **spec: dict[str, Any]) -> dict[str, Any]:
    """Example under another name, with some fields of its spec changed."""
    plan: dict[str, Any] = yaml.safe_load(MANIFEST.read_text())
    plan["metadata"]["name"] = name
    for part, fields in spec.items():
        plan["spec"].setdefault(part, {}).update(fields)
    return plan


def test_it_is_proven_launched_and_trained(trained: Trained) -> None:
    """On the fewest devices, by a plan that was replayed, within six minutes."""
    plan = trained.plan()
    conditions = {one["type"]: one for one in plan["status"]["conditions"]}
    assert {kind: one["status"] for kind, one in conditions.items()} == dict.fromkeys(
        ConditionType, "True"
    )
    assert conditions[ConditionType.CERTIFIED]["reason"] == "Replayed"
    certificate = plan["status"]["certificate"]
    assert certificate["smallerGPUs"] == plan["status"]["plan"]["gpus"] - 1
    assert certificate["verdict"] == "fails"
    assert plan["status"]["attempt"] == 1
    assert trained.took_s < LIMIT_S


def test_the_list_of_plans_shows_predicted_and_observed(trained: Trained) -> None:
    """As `kubectl get tplan` prints it, to anyone."""
    cluster, place = trained.release.cluster, ("-n", trained.namespace)
    head, line = cluster.kubectl("get", "tplan", PLAN, *place).splitlines()
    shown = dict(zip(head.split(), line.split(), strict=False))
    status = trained.plan()["status"]
    assert shown["GPUS"] == str(status["plan"]["gpus"])
    assert line.count("MiB") == 2
    assert status["plan"]["predictedPeak"] in line
    assert status["observed"]["peak"] in line


def test_prometheus_has_both_peaks_of_every_rank(trained: Trained) -> None:
    """And they are as close as was promised."""
    predicted, observed = (
        {one["metric"]["rank"]: float(one["value"][1]) for one in found}
        for found in map(
            trained.selects,
            ("predicted_peak_memory_bytes", "observed_peak_memory_bytes"),
        )
    )
    num_ranks = trained.plan()["status"]["plan"]["gpus"]
    assert set(predicted) == set(observed) == {str(rank) for rank in range(num_ranks)}
    for rank, expected in predicted.items():
        assert abs(observed[rank] - expected) < MOST_ERROR * expected, rank


def test_every_panel_of_the_dashboard_shows_something(trained: Trained) -> None:
    """But for the price of devices that have none."""
    empty = [
        panel
        for panel, expression in EXPRESSIONS
        if not ask(trained.prometheus, filled_in(expression))
    ]
    assert empty == [UNPRICED]


def test_no_rule_fires_and_none_asks_for_what_is_not_there(trained: Trained) -> None:
    """A training without a fault is one that nobody is called for."""
    for rule in RULES:
        assert ask(trained.prometheus, rule["expr"]) == [], rule["alert"]
        for name in re.findall(r"trainingplan_\w+", rule["expr"]):
            assert ask(trained.prometheus, name), name


def test_a_plan_is_rehearsed_before_it_is_launched(trained: Trained) -> None:
    """Its fullest rank, in a pod with one device; it held what was predicted."""
    release, namespace = trained.release, trained.namespace
    plan = a_plan("rehearsed", launch={"rehearse": "Always"}, training={"steps": 3})
    release.cluster.apply(plan, namespace=namespace)
    pods: list[dict[str, Any]] = []

    def is_rehearsed() -> bool:
        labels = f"{PLAN_LABEL}=rehearsed,{TASK_LABEL}=rehearsal"
        found = release.cluster.get("pods", "-l", labels, namespace=namespace)
        pods.extend(found["items"])
        return bool(pods)

    release.cluster.wait_until("a rehearsal", is_rehearsed, timeout_s=LIMIT_S)
    release.wait_for(namespace, "rehearsed", ConditionType.SUCCEEDED, timeout_s=LIMIT_S)
    [container] = pods[0]["spec"]["containers"]
    assert container["resources"]["limits"][GPU_RESOURCE] == "1"
    status = trained.plan("rehearsed")["status"]
    conditions = {one["type"]: one for one in status["conditions"]}
    assert conditions[ConditionType.CERTIFIED]["reason"] == "Rehearsed"
    assert "alone on a device" in conditions[ConditionType.CERTIFIED]["message"]
    assert status["attempt"] == 1


def test_a_tensor_group_trains_in_one_pod(trained: Trained) -> None:
    """Two ranks share each layer of a small Llama, on devices of one node."""
    release, namespace = trained.release, trained.namespace
    plan = a_plan(
        "split",
        workload={"entrypoint": "examples.llama:workload", "args": {"depth": 2}},
        override={"tensor": 2},
        training={"steps": 3},
    )
    release.cluster.apply(plan, namespace=namespace)
    release.wait_for(namespace, "split", ConditionType.SUCCEEDED, timeout_s=LIMIT_S)
    status = trained.plan("split")["status"]
    assert status["plan"]["tensor"] == 2
    assert status["plan"]["gpus"] % 2 == 0
    assert status["attempt"] == 1
    observed = status["observed"]
    error = observed["peakBytes"] / status["plan"]["predictedPeakBytes"] - 1
    assert abs(error) <= MOST_ERROR


def test_what_trains_goes_on_without_the_operator(trained: Trained) -> None:
    """Definition, plans, their Jobs and the volume stay, nothing else of the release.

    Installed again, it goes on with what it finds: no second gang is started.
    """
    release, namespace = trained.release, trained.namespace
    endless = a_plan("endless", training={"steps": ENDLESS_STEPS})
    release.cluster.apply(endless, namespace=namespace)
    release.wait_for(namespace, "endless", ConditionType.LAUNCHED, timeout_s=LIMIT_S)
    before = gang(release.cluster, namespace)
    assert before
    release.uninstall()
    kept = {("CustomResourceDefinition", DEFINITION)}
    if trained.database == "sqlite":
        kept.add(("PersistentVolumeClaim", NAME))
    assert release.left(",".join(kinds(release.cluster))) == kept
    assert ConditionType.SUCCEEDED in release.conditions(namespace, PLAN)
    assert gang(release.cluster, namespace) == before
    release.install()
    release.wait_for(namespace, "endless", ConditionType.LAUNCHED, timeout_s=LIMIT_S)
    assert gang(release.cluster, namespace) == before
    assert trained.plan("endless")["status"]["attempt"] == 1
    release.cluster.kubectl("delete", "tplan", "endless", "-n", namespace)
    # While there is somebody to tell how it ended, or it waits for that.
    gone = ("--for=delete", "--selector=plimsoll.dev/plan=endless", "--timeout=240s")
    release.cluster.kubectl("wait", "pod", *gone, "-n", namespace)


def gang(cluster: Cluster, namespace: str) -> dict[str, str]:
    """Name and uid of all pods that run."""
    running = "--field-selector=status.phase=Running"
    pods = cluster.get("pods", running, namespace=namespace)["items"]
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in pods}


def kinds(cluster: Cluster) -> list[str]:
    """Every kind of object that the cluster can list."""
    return cluster.kubectl("api-resources", "--verbs=list", "-o", "name").split()
