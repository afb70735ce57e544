"""Services, who may reach them, and how many replicas may be taken away."""

from __future__ import annotations

import pytest

from tests.support.chart import of_kind, one, rendered

pytestmark = pytest.mark.control_plane

ENABLED = {"networkPolicy": {"enabled": True}}


def test_each_port_has_its_service() -> None:
    """They lead to ports that the container names, on the pods of this release."""
    objects = rendered()
    found = of_kind(objects, "Service")
    ports = {name: each["spec"]["ports"] for name, each in found.items()}
    assert ports == {
        "plimsoll-metrics": [{"name": "http", "port": 8080, "targetPort": "http"}],
        "plimsoll-ingest": [{"name": "ingest", "port": 8090, "targetPort": "ingest"}],
    }
    selected = one(objects, "Deployment")["spec"]["selector"]["matchLabels"]
    assert all(each["spec"]["selector"] == selected for each in found.values())


def test_reports_come_from_served_namespaces_alone() -> None:
    """Metrics from the named ones; its own connections are not restricted."""
    assert of_kind(rendered(), "NetworkPolicy") == {}
    policy = one(rendered(ENABLED), "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    assert policy["ingress"] == [
        {"ports": [{"port": "ingest"}], "from": [{"namespaceSelector": {}}]},
        {"ports": [{"port": "http"}]},
    ]
    peers = [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]
    values = {
        "watchNamespaces": ["one", "two"],
        "networkPolicy": {"enabled": True, "metricsFrom": peers},
    }
    reports, metrics = one(rendered(values), "NetworkPolicy")["spec"]["ingress"]
    (peer,) = reports["from"]
    assert peer["namespaceSelector"]["matchExpressions"] == [
        {
            "key": "kubernetes.io/metadata.name",
            "operator": "In",
            "values": ["one", "two"],
        }
    ]
    assert metrics["from"] == peers


def test_a_budget_never_holds_up_a_drain() -> None:
    """One pod may always go, also when it is the only one."""
    assert of_kind(rendered(), "PodDisruptionBudget") == {}
    budget = one(
        rendered({"podDisruptionBudget": {"enabled": True}}), "PodDisruptionBudget"
    )
    assert budget["spec"]["maxUnavailable"] == 1
