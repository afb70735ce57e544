"""Rights of the operator: this list, and nothing beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll_operator.backends.pods import BACKENDS
from tests.support.chart import NAMESPACE, Object, of_kind, one, rendered

pytestmark = pytest.mark.control_plane

EVERYWHERE = {
    "/nodes": "list",
    "authentication.k8s.io/tokenreviews": "create",
}
SERVED = {
    "plimsoll.dev/trainingplans": "get list watch",
    "plimsoll.dev/trainingplans/status": "patch",
    "plimsoll.dev/trainingplans/finalizers": "update",
    "batch/jobs": "get list watch create delete",
    "/services": "get create",
    "/configmaps": "get list create delete",
    "/pods": "get list create",
    "/persistentvolumeclaims": "get",
    "events.k8s.io/events": "create",
}
OWN = {"coordination.k8s.io/leases": "get create update"}
OF_CLUSTER = f"{NAMESPACE}-plimsoll"
PAGE = Path(__file__).parents[2] / "docs" / "security.md"


def test_what_back_ends_make_may_be_made() -> None:
    """A new back end is a file; the chart gives it these rights."""
    for backend in BACKENDS.values():
        verbs = SERVED[f"{backend.makes.group}/{backend.makes.plural}"]
        assert verbs == "get list watch create delete"


def allowed(role: Object) -> dict[str, str]:
    """Verbs of each resource."""
    return {
        f"{rule['apiGroups'][0]}/{resource}": " ".join(rule["verbs"])
        for rule in role["rules"]
        for resource in rule["resources"]
    }


def by_place(objects: list[Object], kind: str) -> dict[tuple[str, str], Object]:
    """Objects of a kind by namespace and name; names come again in others."""
    return {
        (each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in objects
        if each["kind"] == kind
    }


def test_all_namespaces_are_served_by_one_role_of_the_cluster() -> None:
    """Leases are for its own namespace alone."""
    objects = rendered({"rbac": {"aggregate": False}})
    assert set(of_kind(objects, "ClusterRole")) == {OF_CLUSTER}
    assert allowed(one(objects, "ClusterRole", OF_CLUSTER)) == EVERYWHERE | SERVED
    (role,) = by_place(objects, "Role").items()
    assert role[0] == (NAMESPACE, "plimsoll-own")
    assert allowed(role[1]) == OWN


def test_named_namespaces_are_served_by_a_role_in_each() -> None:
    """Only the list of nodes and the check of tokens stay cluster-wide."""
    values = {"watchNamespaces": ["one", NAMESPACE], "rbac": {"aggregate": False}}
    objects = rendered(values)
    assert allowed(one(objects, "ClusterRole", OF_CLUSTER)) == EVERYWHERE
    roles = {place: allowed(role) for place, role in by_place(objects, "Role").items()}
    assert roles == {
        ("one", OF_CLUSTER): SERVED,
        (NAMESPACE, OF_CLUSTER): SERVED,
        (NAMESPACE, "plimsoll-own"): OWN,
    }


@pytest.mark.parametrize("values", [{}, {"watchNamespaces": ["one", "two"]}])
def test_every_role_is_bound_to_the_operator(values: dict[str, Any]) -> None:
    """A binding beside each role, in its namespace, to the account of the pods."""
    objects = rendered({**values, "rbac": {"aggregate": False}})
    account = {"kind": "ServiceAccount", "name": "plimsoll", "namespace": NAMESPACE}
    assert one(objects, "ServiceAccount")["automountServiceAccountToken"] is False
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == account["name"]
    assert pod["automountServiceAccountToken"] is True
    for kind in ("Role", "ClusterRole"):
        bindings = by_place(objects, f"{kind}Binding")
        assert set(bindings) == set(by_place(objects, kind))
        for (_, name), binding in bindings.items():
            assert binding["subjects"] == [account]
            assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == (
                kind,
                name,
            )


def test_nothing_is_said_with_a_wildcard_and_no_secret_is_read() -> None:
    """Of no role, also not of those for people."""
    for values in ({}, {"watchNamespaces": ["one"]}):
        objects = rendered(values)
        roles = [each for each in objects if each["kind"] in {"Role", "ClusterRole"}]
        assert len(roles) > 3
        for role in roles:
            assert "secrets" not in str(role["rules"])
            assert "*" not in str(role["rules"])


def test_every_right_is_explained() -> None:
    """With its reason on the page on security, and no other right there."""
    (section,) = PAGE.read_text().split("\n## What the operator may do\n")[1:]
    lines = section.partition("\n## ")[0].splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| `")]
    explained = {resource.strip("`"): verbs for resource, verbs, why in rows if why}
    assert explained == SERVED | EVERYWHERE | OWN


def test_people_get_what_they_have_of_a_namespace() -> None:
    """Who views sees TrainingPlans, who edits changes them; nobody writes a status."""
    objects = rendered()
    viewer = one(objects, "ClusterRole", f"{OF_CLUSTER}-viewer")
    editor = one(objects, "ClusterRole", f"{OF_CLUSTER}-editor")
    assert allowed(viewer) == {
        "plimsoll.dev/trainingplans": "get list watch",
        "plimsoll.dev/trainingplans/status": "get",
        "/configmaps": "get list",
    }
    assert allowed(editor) == {
        "plimsoll.dev/trainingplans": "create update patch delete deletecollection"
    }
    into = {
        role["metadata"]["name"].removeprefix(f"{OF_CLUSTER}-"): {
            label.rpartition("-")[2]
            for label, value in role["metadata"]["labels"].items()
            if "aggregate-to" in label and value == "true"
        }
        for role in (viewer, editor)
    }
    assert into == {"viewer": {"view", "edit", "admin"}, "editor": {"edit", "admin"}}


def test_accounts_and_rights_can_be_brought() -> None:
    """Then the chart makes none, and the pods run under the account that is named."""
    values = {
        "rbac": {"create": False},
        "serviceAccount": {"create": False, "name": "mine"},
    }
    objects = rendered(values)
    kinds = {each["kind"] for each in objects}
    assert not {kind for kind in kinds if "Role" in kind or kind == "ServiceAccount"}
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "mine"
