"""The Deployment: its database, settings, images, rights and where it may run."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll_planner.version import __version__
from tests.support.chart import CHART, Object, of_kind, one, rendered

pytestmark = pytest.mark.control_plane

POSTGRES = {"database": {"existingSecret": "postgres"}}


def pod_of(objects: list[Object]) -> dict[str, Any]:
    """Spec of the operator's pods."""
    return dict(one(objects, "Deployment")["spec"]["template"]["spec"])


def operator_of(objects: list[Object]) -> dict[str, Any]:
    """One container."""
    (container,) = pod_of(objects)["containers"]
    return dict(container)


def volumes_of(objects: list[Object]) -> dict[str, Any]:
    """Volumes, by name."""
    return {each["name"]: each for each in pod_of(objects)["volumes"]}


def environment_of(objects: list[Object]) -> dict[str, Any]:
    """Variables that are set one by one."""
    return {each["name"]: each for each in operator_of(objects)["env"]}


def settings_of(objects: list[Object]) -> dict[str, str]:
    """Variables from the ConfigMap."""
    container = operator_of(objects)
    name = container["envFrom"][0]["configMapRef"]["name"]
    return dict(one(objects, "ConfigMap", name)["data"])


def test_services_bring_no_variables_of_their_own() -> None:
    """One would be PLIMSOLL_INGEST_PORT=tcp://..., which is no port."""
    assert pod_of(rendered())["enableServiceLinks"] is False


def test_sqlite_is_used_by_one_process_on_a_claim_that_stays() -> None:
    """The old pod is gone before the new one starts; an uninstall leaves the claim."""
    objects = rendered()
    deployment = one(objects, "Deployment")["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    claim = one(objects, "PersistentVolumeClaim")
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert claim["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "5Gi"}},
    }
    assert volumes_of(objects)["database"]["persistentVolumeClaim"] == {
        "claimName": "plimsoll"
    }
    path = settings_of(objects)["PLIMSOLL_DATABASE"]
    mounts = {m["name"]: m["mountPath"] for m in operator_of(objects)["volumeMounts"]}
    assert path.startswith(f"{mounts['database']}/")


def test_a_claim_can_be_brought_or_done_without() -> None:
    """Then none is made."""
    brought = rendered({"database": {"sqlite": {"existingClaim": "mine"}}})
    assert of_kind(brought, "PersistentVolumeClaim") == {}
    claim = volumes_of(brought)["database"]["persistentVolumeClaim"]
    assert claim == {"claimName": "mine"}
    without = rendered({"database": {"sqlite": {"persistence": False}}})
    assert of_kind(without, "PersistentVolumeClaim") == {}
    assert volumes_of(without)["database"] == {"name": "database", "emptyDir": {}}
    sized = {"storageClassName": "fast", "size": "20Gi"}
    claim = one(rendered({"database": {"sqlite": sized}}), "PersistentVolumeClaim")
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"]["requests"]["storage"] == "20Gi"


def test_postgresql_lets_replicas_stand_beside_each_other() -> None:
    """Its address comes from a Secret alone; there is no claim."""
    objects = rendered({**POSTGRES, "replicas": 3})
    deployment = one(objects, "Deployment")["spec"]
    assert deployment["replicas"] == 3
    assert deployment["strategy"] == {"type": "RollingUpdate"}
    assert of_kind(objects, "PersistentVolumeClaim") == {}
    assert set(volumes_of(objects)) == {"tmp", "database-ca"}
    assert "PLIMSOLL_DATABASE" not in settings_of(objects)
    source = environment_of(objects)["PLIMSOLL_DATABASE"]["valueFrom"]
    assert source == {"secretKeyRef": {"name": "postgres", "key": "url"}}


def test_an_authority_of_the_database_may_be_in_its_secret() -> None:
    """Mounted where the pages say; a Secret without one starts the operator as well."""
    objects = rendered(POSTGRES)
    assert volumes_of(objects)["database-ca"]["secret"] == {
        "secretName": "postgres",
        "optional": True,
        "items": [{"key": "ca.crt", "path": "ca.crt"}],
    }
    mounts = {each["name"]: each for each in operator_of(objects)["volumeMounts"]}
    mount = mounts["database-ca"]
    assert mount["readOnly"] is True
    address = f"?sslmode=verify-full&sslrootcert={mount['mountPath']}/ca.crt"
    for path in ("charts/plimsoll/values.yaml", "docs/security.md"):
        assert address in (CHART.parents[1] / path).read_text()
    assert "database-ca" not in volumes_of(rendered())


def test_settings_reach_the_operator() -> None:
    """All of them by name; who it is comes from the pod."""
    values = {
        "watchNamespaces": ["one", "two"],
        "runtimeImage": {"repository": "example/runtime", "tag": "9"},
        "metrics": {"plans": False},
        "config": {"shareProfiles": True, "solverProcesses": 4},
        "logging": {"level": "debug", "format": "text"},
        "leaderElection": {"leaseName": "mine"},
    }
    objects = rendered(values)
    assert settings_of(objects) == {
        "PLIMSOLL_DATABASE": "/var/lib/plimsoll/plimsoll.db",
        "PLIMSOLL_WATCH_NAMESPACES": "one,two",
        "PLIMSOLL_RUNTIME_IMAGE": "example/runtime:9",
        "PLIMSOLL_INGEST_URL": "http://plimsoll-ingest.plimsoll-system.svc:8090",
        "PLIMSOLL_LEASE": "mine",
        "PLIMSOLL_PLAN_METRICS": "false",
        "PLIMSOLL_SHARE_PROFILES": "true",
        "PLIMSOLL_SOLVERS": "4",
        "PLIMSOLL_LOG_LEVEL": "debug",
        "PLIMSOLL_LOG_FORMAT": "text",
    }
    fields = {
        name: each["valueFrom"]["fieldRef"]["fieldPath"]
        for name, each in environment_of(objects).items()
    }
    assert fields == {
        "PLIMSOLL_NAMESPACE": "metadata.namespace",
        "PLIMSOLL_POD_NAME": "metadata.name",
    }
    plain = settings_of(rendered())
    assert plain["PLIMSOLL_WATCH_NAMESPACES"] == ""
    assert plain["PLIMSOLL_LEASE"] == "plimsoll"


def test_a_change_of_settings_starts_the_operator_again() -> None:
    """A value read at the start alone would otherwise wait for the next one."""
    hashes = {
        one(rendered(values), "Deployment")["spec"]["template"]["metadata"][
            "annotations"
        ]["checksum/config"]
        for values in ({}, {"logging": {"level": "debug"}}, {"podLabels": {"a": "b"}})
    }
    assert len(hashes) == 2


def test_images_are_of_the_release_or_as_told() -> None:
    """A digest comes before a tag."""
    usual = f"registry.example/plimsoll/operator:{__version__}"
    assert operator_of(rendered())["image"] == usual
    digest = f"sha256:{'0' * 64}"
    settings = {"repository": "example/op", "tag": "9", "digest": digest}
    container = operator_of(rendered({"image": {**settings, "pullPolicy": "Always"}}))
    assert container["image"] == f"example/op@{digest}"
    assert container["imagePullPolicy"] == "Always"


def test_it_runs_with_no_rights_on_its_machine() -> None:
    """As the pod security standard `restricted` asks, and with a read-only disk."""
    objects = rendered()
    pod, container = pod_of(objects), operator_of(objects)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]  # noqa: S108 - in a pod
    assert volumes_of(objects)["tmp"] == {"name": "tmp", "emptyDir": {}}
    assert container["resources"]["requests"]["memory"] == "256Mi"
    assert container["resources"]["limits"]["memory"] == "3.5Gi"


def test_it_is_asked_how_it_is() -> None:
    """Alive and ready are two questions, on a port that it has."""
    container = operator_of(rendered())
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"http": 8080, "ingest": 8090}
    paths = {
        name: container[name]["httpGet"]
        for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert paths == {
        "startupProbe": {"path": "/healthz", "port": "http"},
        "livenessProbe": {"path": "/healthz", "port": "http"},
        "readinessProbe": {"path": "/readyz", "port": "http"},
    }


def test_where_it_runs_can_be_told() -> None:
    """Each of the usual fields arrives in the pod; left alone it is not there."""
    values: dict[str, Any] = {
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [{"maxSkew": 1}],
        "priorityClassName": "high",
        "imagePullSecrets": [{"name": "pull"}],
        "terminationGracePeriodSeconds": 5,
    }
    pod = pod_of(rendered(values))
    assert {name: pod[name] for name in values} == values
    left = set(values) - {"terminationGracePeriodSeconds"}
    assert not left & set(pod_of(rendered()))


def test_labels_and_annotations_can_be_added_to_its_pods() -> None:
    """The selector stays as it is: it can never be changed."""
    part_of = "app.kubernetes.io/part-of"
    more = {"team": "one", part_of: "two"}
    values = {"podLabels": more, "podAnnotations": {"note": "two"}}
    deployment = one(rendered(values), "Deployment")["spec"]
    metadata = deployment["template"]["metadata"]
    assert more.items() <= metadata["labels"].items()
    assert deployment["selector"]["matchLabels"].keys().isdisjoint(more)
    assert metadata["annotations"]["note"] == "two"
    selected = deployment["selector"]["matchLabels"]
    assert set(selected) == {"app.kubernetes.io/name", "app.kubernetes.io/instance"}
    assert selected.items() <= metadata["labels"].items()
