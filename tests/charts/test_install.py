"""The life of a release on a real API server: installed, upgraded, gone, back again.

No node runs its pods; that the API server lets them be made is seen.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll_operator.names import GROUP, PLURAL
from tests.lab.cluster import Cluster
from tests.support.chart import CHART, NAME

pytestmark = pytest.mark.control_plane

DEFINITION = f"{PLURAL}.{GROUP}"
A_PLAN = yaml.safe_load((CHART.parents[1] / "examples" / "tiny-gpt.yaml").read_text())
OWNED = (
    *("deployments", "services", "configmaps", "serviceaccounts", "secrets"),
    *("roles", "rolebindings", "networkpolicies", "poddisruptionbudgets"),
    *("persistentvolumeclaims", "clusterroles", "clusterrolebindings", "crds"),
)
ENFORCED = "pod-security.kubernetes.io/enforce=restricted"
FULL: dict[str, Any] = {
    "podDisruptionBudget": {"enabled": True},
    "networkPolicy": {"enabled": True},
    "grafanaDashboard": {"enabled": True},
}


@pytest.fixture
def server(control_plane: Cluster, namespace: str) -> Iterator[Cluster]:
    """Server without the definition; release and definition go after it."""
    delete = ("delete", "crd", DEFINITION, "--ignore-not-found", "--timeout=240s")
    control_plane.kubectl(*delete)
    yield control_plane
    uninstall(control_plane, namespace, "--ignore-not-found")
    control_plane.kubectl(*delete)


def install(
    server: Cluster, namespace: str, *, chart: Path = CHART, **values: Any
) -> None:
    """Install a release, or upgrade it."""
    command = ("helm", "upgrade", "--install", NAME, str(chart), "-n", namespace)
    server.run(*command, "--values=-", stdin=json.dumps(values))


def uninstall(server: Cluster, namespace: str, *flags: str) -> None:
    """Take a release away."""
    server.run("helm", "uninstall", NAME, "-n", namespace, "--wait", *flags)


def may(server: Cluster, user: str, namespace: str, what: str) -> bool:
    """Whether a user may do something there: a verb and a resource."""
    verb, resource = what.split()
    name, _, part = resource.partition("/")
    question = ("auth", "can-i", verb, name, f"--subresource={part}", f"--as={user}")
    done = server.run("kubectl", *question, "-n", namespace, check=False)
    return done.stdout.strip() == "yes"


def left(server: Cluster, namespace: str) -> set[tuple[str, str]]:
    """Kind and name of all that bears the label of the release."""
    label = f"--selector=app.kubernetes.io/instance={NAME}"
    items = server.get(",".join(OWNED), label, namespace=namespace)["items"]
    return {(each["kind"], each["metadata"]["name"]) for each in items}


def a_changed_chart(folder: Path) -> Path:
    """Copy of the chart whose definition has one more column."""
    chart = folder / "plimsoll"
    shutil.copytree(CHART, chart)
    file = chart / "files" / "crd.yaml"
    crd = yaml.safe_load(file.read_text())
    column = {"name": "Later", "type": "string", "jsonPath": ".spec.later"}
    crd["spec"]["versions"][0]["additionalPrinterColumns"].append(column)
    file.write_text(yaml.safe_dump(crd))
    return chart


def test_a_release_comes_and_its_pods_may_be_made(
    server: Cluster, namespace: str
) -> None:
    """If a namespace enforces the pod security standard `restricted`."""
    server.kubectl("label", "namespace", namespace, ENFORCED)
    install(server, namespace, **FULL)
    server.wait(f"crd/{DEFINITION}", "condition=Established")
    server.apply(A_PLAN, namespace=namespace)
    shown = server.kubectl("get", "tplan", "-n", namespace, "--no-headers")
    assert shown.split()[0] == "tiny-gpt"
    server.wait_until(
        "a pod", lambda: bool(server.get("pods", namespace=namespace)["items"])
    )


def test_an_upgrade_brings_the_definition_up(
    server: Cluster, namespace: str, tmp_path: Path
) -> None:
    """TrainingPlans that there are stay; changed settings make another pod template."""
    install(server, namespace)
    server.wait(f"crd/{DEFINITION}", "condition=Established")
    server.apply(A_PLAN, namespace=namespace)
    chart = a_changed_chart(tmp_path)
    install(server, namespace, chart=chart, logging={"level": "debug"})
    crd = server.get("crd", DEFINITION)
    columns = crd["spec"]["versions"][0]["additionalPrinterColumns"]
    assert columns[-1]["name"] == "Later"
    assert server.get("tplan", "tiny-gpt", namespace=namespace)["spec"]
    settings = server.get("configmap", NAME, namespace=namespace)["data"]
    assert settings["PLIMSOLL_LOG_LEVEL"] == "debug"
    deployment = server.get("deployment", NAME, namespace=namespace)
    assert deployment["metadata"]["generation"] == 2


def test_what_was_found_outlives_the_release(server: Cluster, namespace: str) -> None:
    """Definition, plans and claim stay, nothing else; the release takes them over."""
    install(server, namespace, **FULL)
    server.wait(f"crd/{DEFINITION}", "condition=Established")
    server.apply(A_PLAN, namespace=namespace)
    before = left(server, namespace)
    assert len(before) > 10
    uid = server.get("pvc", NAME, namespace=namespace)["metadata"]["uid"]
    uninstall(server, namespace)
    assert left(server, namespace) == {
        ("CustomResourceDefinition", DEFINITION),
        ("PersistentVolumeClaim", NAME),
    }
    assert server.get("tplan", "tiny-gpt", namespace=namespace)["spec"]
    install(server, namespace, **FULL)
    assert left(server, namespace) == before
    claim = server.get("pvc", NAME, namespace=namespace)
    assert claim["metadata"]["uid"] == uid
    assert server.get("tplan", "tiny-gpt", namespace=namespace)["spec"]


def test_another_release_takes_the_definition_over_when_it_is_told_to(
    server: Cluster, namespace: str
) -> None:
    """Under another name, with the claim of the one before."""
    install(server, namespace)
    server.wait(f"crd/{DEFINITION}", "condition=Established")
    server.apply(A_PLAN, namespace=namespace)
    uninstall(server, namespace)
    claim = "--set=database.sqlite.existingClaim=plimsoll"
    words = ("helm", "install", "other", str(CHART), "-n", namespace, claim)
    done = server.run(*words, check=False)
    assert "invalid ownership metadata" in done.stderr
    server.run(*words, "--take-ownership")
    assert server.get("tplan", "tiny-gpt", namespace=namespace)["spec"]
    deployment = server.get("deployment", "other-plimsoll", namespace=namespace)
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    assert {"claimName": NAME} in [v.get("persistentVolumeClaim") for v in volumes]
    server.run("helm", "uninstall", "other", "-n", namespace, "--wait")
    server.run(*words, "--set=crds.enabled=false")
    server.run("helm", "uninstall", "other", "-n", namespace, "--wait")


def test_a_release_changes_to_postgresql_and_its_claim_stays(
    server: Cluster, namespace: str
) -> None:
    """By the command of the page, which keeps what else was set."""
    install(server, namespace, logging={"level": "debug"})
    words = ("helm", "upgrade", NAME, str(CHART), "-n", namespace)
    changed = ("--set=database.existingSecret=mine", "--set=replicas=2")
    server.run(*words, "--reset-then-reuse-values", *changed)
    deployment = server.get("deployment", NAME, namespace=namespace)["spec"]
    assert deployment["replicas"] == 2
    assert deployment["strategy"]["type"] == "RollingUpdate"
    settings = server.get("configmap", NAME, namespace=namespace)["data"]
    assert settings["PLIMSOLL_LOG_LEVEL"] == "debug"
    assert server.get("pvc", NAME, namespace=namespace)["spec"]


def test_the_operator_may_do_what_it_does_and_no_more(
    server: Cluster, namespace: str
) -> None:
    """As the API server answers for its account, with one namespace that is served."""
    served = f"{namespace}-served"
    server.kubectl("create", "namespace", served)
    install(server, namespace, watchNamespaces=[served])
    user = f"system:serviceaccount:{namespace}:{NAME}"
    allowed = {
        served: ("create jobs.batch", f"patch {DEFINITION}/status", "list nodes"),
        namespace: ("update leases.coordination.k8s.io", "list nodes"),
    }
    denied = {
        served: ("patch jobs.batch", "get secrets", "delete pods", "update leases"),
        namespace: ("create jobs.batch", f"list {DEFINITION}", "get secrets"),
    }
    for place, questions in allowed.items():
        for what in questions:
            assert may(server, user, place, what), (place, what)
    for place, questions in denied.items():
        for what in questions:
            assert not may(server, user, place, what), (place, what)
    server.kubectl("delete", "namespace", served, "--wait=false")


def test_people_get_it_with_their_namespace(server: Cluster, namespace: str) -> None:
    """The cluster's own role `edit` brings TrainingPlans, once the chart is there."""
    install(server, namespace)
    binding = ("create", "rolebinding", "ann", "--clusterrole=edit", "--user=ann")
    server.kubectl(*binding, "-n", namespace)
    # A controller puts roles together, a moment later.
    server.wait_until(
        "the rights", lambda: may(server, "ann", namespace, f"create {DEFINITION}")
    )
    assert may(server, "ann", namespace, f"get {DEFINITION}/status")
    assert not may(server, "ann", namespace, f"patch {DEFINITION}/status")
