"""The chart as a whole: lint, versions, refused values, names and labels."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from plimsoll_operator.control.configuration import MOST_SOLVERS
from plimsoll_planner.version import __version__
from tests.lab.cluster import Cluster
from tests.support.chart import CHART, MONITORING, helm, of_kind, one, refusal, rendered

pytestmark = pytest.mark.control_plane

EVERYTHING: dict[str, Any] = {
    "imagePullSecrets": [{"name": "pull"}],
    "watchNamespaces": ["research", "plimsoll-system"],
    "database": {"existingSecret": "postgres"},
    "replicas": 2,
    "metrics": {
        "serviceMonitor": {"enabled": True, "additionalLabels": {"release": "mine"}},
        "prometheusRule": {"enabled": True, "namespace": "monitoring"},
    },
    "grafanaDashboard": {"enabled": True, "annotations": {"grafana_folder": "GPU"}},
    "service": {"annotations": {"a": "b"}},
    "serviceAccount": {"annotations": {"a": "b"}},
    "podDisruptionBudget": {"enabled": True},
    "networkPolicy": {"enabled": True, "metricsFrom": [{"podSelector": {}}]},
    "podAnnotations": {"a": "b"},
    "podLabels": {"team": "one"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "topologySpreadConstraints": [],
    "priorityClassName": "system-cluster-critical",
}
LONGEST = "r" * 53
"""As helm allows it for the name of a release."""


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_lint_finds_nothing(values: dict[str, Any]) -> None:
    """In its strict form, where a warning is a failure."""
    status, output = helm("lint", "--strict", str(CHART), values=values)
    assert status == 0, output
    assert "[WARNING]" not in output


def test_the_versions_are_that_of_the_project() -> None:
    """Of chart and images: what is released together is named alike."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


def test_an_old_kubernetes_is_refused() -> None:
    """With the version that it takes; those of a vendor count as what they are."""
    place = ("template", "plimsoll", str(CHART), "--kube-version")
    status, output = helm(*place, "1.28.9")
    assert status
    assert ">=1.29.0" in output
    assert helm(*place, "1.29.4-gke.1043002")[0] == 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"replica": 1}, "replica"),
        ({"database": {"sqlite": {"path": "/x"}}}, "path"),
        ({"replicas": "two"}, "replicas"),
        ({"image": {"digest": "sha256:12"}}, "digest"),
        ({"logging": {"level": "loud"}}, "level"),
        ({"watchNamespaces": ["Research"]}, "watchNamespaces"),
        ({"watchNamespaces": "research"}, "watchNamespaces"),
        ({"config": {"solverProcesses": 0}}, "solverProcesses"),
        ({"config": {"solverProcesses": MOST_SOLVERS + 1}}, "solverProcesses"),
        ({"image": {"repository": "there/operator:1"}}, "repository"),
        ({"runtimeImage": {"repository": "there:5000/a@sha256:0"}}, "repository"),
        ({"fullnameOverride": "n" * 51}, "fullnameOverride"),
        ({"fullnameOverride": "1plimsoll"}, "fullnameOverride"),
        ({"nameOverride": "n" * 41}, "nameOverride"),
        ({"podLabels": {"app.kubernetes.io/name": "a"}}, "podLabels: app.kubernetes"),
        ({"grafanaDashboard": {"enable": True}}, "enable"),
        ({"replicas": 2}, "replicas: 2 needs a PostgreSQL"),
        ({"serviceAccount": {"create": False}}, "needs serviceAccount.name"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any], message: str) -> None:
    """A misspelt value would otherwise be dropped in silence; the field is named."""
    assert message in refusal(values)


def test_the_schema_knows_every_value() -> None:
    """Every value of values.yaml is in the schema, with nothing beside it."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(schema["properties"]) - {"global"} == set(values)

    def check(part: dict[str, Any], found: dict[str, Any], path: str) -> None:
        for name, inner in found.items():
            known = part["properties"]
            assert name in known, f"{path}.{name}"
            if "properties" in known[name]:
                assert known[name]["additionalProperties"] is False, f"{path}.{name}"
                check(known[name], inner, f"{path}.{name}")

    assert schema["additionalProperties"] is False
    check(schema, values, "values")


def test_every_object_says_what_it_belongs_to() -> None:
    """By the usual labels, which also a person can select by."""
    objects = rendered(EVERYTHING, apis=[MONITORING])
    optional = {"NetworkPolicy", "PodDisruptionBudget", "PrometheusRule"}
    assert optional | {"ServiceMonitor"} <= {each["kind"] for each in objects}
    for each in objects:
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "plimsoll"
        assert labels["app.kubernetes.io/instance"] == "plimsoll"
        assert labels["app.kubernetes.io/version"] == __version__
        assert labels["app.kubernetes.io/managed-by"] == "Helm"


def test_names_follow_the_release() -> None:
    """Cut so that nothing behind them is too long; they can be chosen."""
    assert one(rendered(release="mine"), "Deployment", "mine-plimsoll")
    chosen = rendered({"fullnameOverride": "own"}, release="mine")
    assert one(chosen, "Deployment", "own")
    for objects in (
        rendered({"fullnameOverride": "n" * 50}),
        rendered(release=LONGEST),
    ):
        for each in objects:
            is_of_cluster = each["kind"].startswith("Cluster")
            assert len(each["metadata"]["name"]) <= 63 or is_of_cluster


def test_a_release_may_have_a_name_that_no_service_may() -> None:
    """Dots become dashes; where a digit comes first, the remedy is printed."""
    dotted = rendered(release="team.one")
    assert set(of_kind(dotted, "Service")) == {
        "team-one-plimsoll-ingest",
        "team-one-plimsoll-metrics",
    }
    place = ("template", "1plimsoll", str(CHART))
    status, output = helm(*place)
    assert status
    assert "set fullnameOverride" in output
    numbered = rendered({"fullnameOverride": "own"}, release="123")
    labels = one(numbered, "Deployment", "own")["metadata"]["labels"]
    assert labels["app.kubernetes.io/instance"] == "123"


def test_names_of_digits_stay_words() -> None:
    """YAML would read numbers, and an API server refuse them."""
    values = {
        "database": {"existingSecret": "12"},
        "serviceAccount": {"name": "34"},
        "leaderElection": {"leaseName": "56"},
        "priorityClassName": "78",
        "watchNamespaces": ["90"],
    }
    objects = rendered(values)
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["priorityClassName"]) == ("34", "78")
    sources = [each["valueFrom"] for each in pod["containers"][0]["env"]]
    assert {"secretKeyRef": {"name": "12", "key": "url"}} in sources
    assert one(objects, "ConfigMap")["data"]["PLIMSOLL_LEASE"] == "56"
    role = next(each for each in objects if each["kind"] == "Role")
    assert role["metadata"]["namespace"] == "90"


@pytest.mark.parametrize(
    "repository",
    [
        "operator",
        "team/operator",
        "host:5000/x",
        "10.0.0.1:5000/a/b-c_d",
        "[::1]:5000/x",
    ],
)
def test_a_repository_may_be_at_a_port(repository: str) -> None:
    """The part before the first slash is a host; a tag comes behind the last."""
    objects = rendered({"image": {"repository": repository}})
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == f"{repository}:{__version__}"


def notes(cluster: Cluster, values: dict[str, Any]) -> str:
    """Notes that a person reads once the chart is installed."""
    command = ("helm", "install", "plimsoll", str(CHART), "--dry-run=client")
    done = cluster.run(*command, "--values=-", stdin=json.dumps(values))
    return done.stdout.partition("NOTES:")[2]


def test_notes_say_what_to_do_next(control_plane: Cluster) -> None:
    """And what to expect of what was chosen."""
    text = notes(control_plane, {"watchNamespaces": ["one", "two"]})
    assert "serves the TrainingPlans of one, two." in text
    assert "rollout status deployment/plimsoll" in text
    assert "leaves the definition, all TrainingPlans and the claim plimsoll." in text
    assert "is lost" not in text
    for name in ("image", "runtimeImage"):
        assert f"\n{name}.repository is registry.example/plimsoll/" in text
    values = {
        "database": {"sqlite": {"persistence": False}},
        "metrics": {"serviceMonitor": {"enabled": True}},
        "image": {"repository": "registry.example.org/operator"},
        "runtimeImage": {"repository": "mine:5000/plimsoll/runtime"},
    }
    text = notes(control_plane, values)
    assert "serves the TrainingPlans of all namespaces." in text
    assert "What it measures is lost with its pod" in text
    assert "does not know monitoring.coreos.com/v1" in text
    assert "repository is" not in text
