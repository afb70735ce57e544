"""A real API server takes the schema, and judges by it as the types do.

All documents of `faults` are sent, each as a dry run: what the server's own engines
make of patterns, defaults and unknown fields is seen for every field.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from plimsoll_operator.api.schema import openapi_schema
from plimsoll_operator.api.spec import TrainingPlanSpec, parse_spec
from plimsoll_operator.api.status import Status
from plimsoll_planner.records.record import Record
from tests.lab.cluster import Cluster
from tests.support.api_values import (
    A_SPEC,
    A_STATUS,
    faults,
    fields_of,
    is_beyond_schemas,
    refusal,
    without_nulls,
)

pytestmark = pytest.mark.control_plane

GROUP = "schema.lab.plimsoll.dev"
NAME = f"trials.{GROUP}"
LEAST = {name: A_SPEC[name] for name in ("workload", "training")}
CREATE = ("kubectl", "create", "--dry-run=server", "--filename=-")


def a_definition() -> dict[str, Any]:
    """Return a kind with the schema of spec and status."""
    schema = {
        "type": "object",
        "properties": {
            "spec": openapi_schema(TrainingPlanSpec),
            "status": openapi_schema(Status),
        },
        "required": ["spec"],
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": "trials", "singular": "trial", "kind": "Trial"},
            "versions": [version],
        },
    }


def a_trial(number: int = 0, **parts: Any) -> dict[str, Any]:
    """Return an object of that kind."""
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Trial",
        "metadata": {"name": f"trial-{number}"},
        **parts,
    }


@pytest.fixture(scope="module")
def server(control_plane: Cluster) -> Iterator[Cluster]:
    """Return a server that knows the kind."""
    control_plane.apply(a_definition())
    control_plane.wait(f"crd/{NAME}", "condition=Established")
    least = json.dumps(a_trial(spec=LEAST))
    control_plane.wait_until(
        "a trial",
        lambda: not control_plane.run(*CREATE, stdin=least, check=False).returncode,
    )
    yield control_plane
    control_plane.kubectl("delete", "crd", NAME)


def accepted(server: Cluster, part: str, documents: list[Any]) -> set[int]:
    """Return the numbers of the documents that the server takes as spec or status."""
    trials = [
        a_trial(number, **{"spec": LEAST, part: document})
        for number, document in enumerate(documents)
    ]
    # One after the other and no List, which kubectl would judge itself.
    stream = "\n".join(map(json.dumps, trials))
    done = server.run(*CREATE, "--output=name", stdin=stream, check=False)
    return {int(name.rpartition("-")[2]) for name in done.stdout.split()}


@pytest.mark.parametrize(
    ("kind", "part", "whole"),
    [(TrainingPlanSpec, "spec", A_SPEC), (Status, "status", A_STATUS)],
)
def test_a_server_judges_as_the_types_do(
    server: Cluster, kind: type[Record], part: str, whole: dict[str, Any]
) -> None:
    """Every field at its bounds, absent, odd, unknown; null is absent to a server."""
    documents = [
        document
        for place, shape, _ in fields_of(kind)
        for document in faults(whole, place, shape)
    ]
    taken = accepted(server, part, documents)
    assert 0 < len(taken) < len(documents)
    for number, document in enumerate(documents):
        error = refusal(kind, without_nulls(document))
        if error is None or not is_beyond_schemas(error):
            assert (number in taken) is (error is None), error or document


def test_a_condition_stands_once(server: Cluster) -> None:
    """A server knows which field tells conditions apart; JSON Schema cannot."""
    said = A_STATUS["conditions"][:2]
    documents = [{"conditions": said}, {"conditions": [*said, said[0]]}]
    assert accepted(server, "status", documents) == {0}


def test_a_server_fills_in_the_defaults_of_the_types(server: Cluster) -> None:
    """A spec comes back as it is read at home; what was given stays, nested too."""
    for given in (LEAST, A_SPEC, LEAST | {"search": {"offers": {}}, "launch": None}):
        sent = json.dumps(a_trial(spec=given))
        written = server.run(*CREATE, "--output=json", stdin=sent).stdout
        read = parse_spec(without_nulls(given))
        assert json.loads(written)["spec"] == without_nulls(read.to_json())


def test_a_server_writes_whole_numbers_without_a_point(server: Cluster) -> None:
    """So that what it takes is no surprise to the types."""
    training = {"globalBatchSize": 32.0, "steps": 200.0}
    sent = json.dumps(a_trial(spec=LEAST | {"training": training}))
    written = server.run(*CREATE, "--output=json", stdin=sent).stdout
    assert parse_spec(json.loads(written)["spec"]).training.steps == 200


def test_what_is_wrong_is_named_with_its_path(server: Cluster) -> None:
    """In the words of the server, with the field and what is allowed."""
    for part, said in (
        ({"search": {"maxGpus": 4}}, 'unknown field "spec.search.maxGpus"'),
        ({"search": {"maxGPUs": 0}}, "spec.search.maxGPUs in body should be greater"),
        ({"launch": {"policy": "planonly"}}, 'values: "Launch", "PlanOnly"'),
        ({"training": {"steps": 1}}, "spec.training.globalBatchSize: Required value"),
    ):
        sent = json.dumps(a_trial(spec=LEAST | part))
        assert said in server.run(*CREATE, stdin=sent, check=False).stderr
