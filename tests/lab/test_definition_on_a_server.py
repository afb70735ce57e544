"""A real API server takes the definition, and judges by it as the types do.

All documents of `faults` are sent, each as a dry run: what the server's own engines
make of patterns, defaults and unknown fields is seen for every field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll_operator.api.spec import TrainingPlanSpec, parse_spec
from plimsoll_operator.api.status import Status
from plimsoll_planner.records.record import Record
from tests.lab.cluster import Cluster
from tests.lab.trainingplans import (
    CREATE,
    LEAST,
    Plan,
    a_trial,
    an_object,
    establish,
    refused,
    trial_definition,
)
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

TRIALS = "schema.lab.plimsoll.dev"
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def trials(control_plane: Cluster) -> Iterator[Cluster]:
    """Server that judges whole documents, the status too."""
    made = trial_definition(TRIALS)
    establish(control_plane, made, a_trial(TRIALS, spec=LEAST))
    yield control_plane
    control_plane.kubectl("delete", "crd", made["metadata"]["name"])


def accepted(server: Cluster, part: str, documents: list[Any]) -> set[int]:
    """Numbers of the documents that the server takes as spec or status."""
    sent = [
        a_trial(TRIALS, number, **{"spec": LEAST, part: document})
        for number, document in enumerate(documents)
    ]
    # One after the other and no List, which kubectl would judge itself.
    stream = "\n".join(map(json.dumps, sent))
    done = server.run(*CREATE, "--output=name", stdin=stream, check=False)
    return {int(name.rpartition("-")[2]) for name in done.stdout.split()}


@pytest.mark.parametrize(
    ("kind", "part", "whole"),
    [(TrainingPlanSpec, "spec", A_SPEC), (Status, "status", A_STATUS)],
)
def test_a_server_judges_as_the_types_do(
    trials: Cluster, kind: type[Record], part: str, whole: dict[str, Any]
) -> None:
    """Every field at its bounds, absent, odd, unknown; null is absent to a server."""
    documents = [
        document
        for place, shape, _ in fields_of(kind)
        for document in faults(whole, place, shape)
    ]
    taken = accepted(trials, part, documents)
    assert 0 < len(taken) < len(documents)
    for number, document in enumerate(documents):
        error = refusal(kind, without_nulls(document))
        if error is None or not is_beyond_schemas(error):
            assert (number in taken) is (error is None), error or document


def test_a_condition_stands_once(trials: Cluster) -> None:
    """A server knows which field tells conditions apart; JSON Schema cannot."""
    conditions = A_STATUS["conditions"][:2]
    documents = [
        {"conditions": conditions},
        {"conditions": [*conditions, conditions[0]]},
    ]
    assert accepted(trials, "status", documents) == {0}


def written(server: Cluster, sent: dict[str, Any]) -> dict[str, Any]:
    """Object as the server would write it."""
    done = server.run(*CREATE, "--output=json", stdin=json.dumps(sent))
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_server_fills_in_the_defaults_of_the_types(server: Cluster) -> None:
    """A spec comes back as it is read at home; what was given stays, nested too."""
    for given in (
        LEAST,
        A_SPEC,
        LEAST | {"search": {"offers": {}, "maxMicroBatch": None}, "launch": None},
    ):
        found = written(server, an_object("a", spec=given))["spec"]
        read = parse_spec(without_nulls(given))
        assert found == without_nulls(read.to_json())


def test_what_somebody_else_knows_is_kept_as_it_is(server: Cluster) -> None:
    """Nulls of arguments and of a template too: they may mean something there."""
    workload = LEAST["workload"] | {"args": {"depth": None, "more": {"a": [None]}}}
    template = {"spec": {"nodeSelector": None, "volumes": [{"emptyDir": None}]}}
    spec = {**LEAST, "workload": workload, "template": template}
    found = written(server, an_object("a", spec=spec))["spec"]
    assert (found["workload"], found["template"]) == (workload, template)


def test_a_server_writes_whole_numbers_without_a_point(server: Cluster) -> None:
    """So that what it takes is no surprise to the types."""
    training = {"globalBatchSize": 32.0, "steps": 200.0}
    found = written(server, an_object("a", spec=LEAST | {"training": training}))
    assert parse_spec(found["spec"]).training.steps == 200


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"search": {"maxGpus": 4}}, 'unknown field "spec.search.maxGpus"'),
        ({"search": {"maxGPUs": 0}}, "spec.search.maxGPUs in body should be greater"),
        ({"launch": {"policy": "planonly"}}, 'values: "Launch", "PlanOnly"'),
        ({"training": {"steps": 1}}, "spec.training.globalBatchSize: Required value"),
        (
            {"search": {"minSamplesPerSecond": "0.0"}},
            'spec.search.minSamplesPerSecond: Invalid value: "0.0": must be above 0',
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_path(
    server: Cluster, part: dict[str, Any], message: str
) -> None:
    """In the words of the server, with the field and what is allowed."""
    assert message in refused(server, an_object("a", spec=LEAST | part))


@pytest.mark.parametrize(
    ("metadata", "is_right"),
    [
        ({"name": "a"}, True),
        ({"name": "a-7"}, True),
        ({"name": "n" * 40}, True),
        ({"name": "n" * 41}, False),
        ({"name": "7b"}, False),
        ({"name": "a.b"}, False),
        ({"generateName": "run-"}, True),
        ({"generateName": "7-"}, False),
        ({"generateName": "n" * 40}, False),
    ],
)
def test_a_name_opens_those_of_tasks_and_of_a_service(
    server: Cluster, metadata: dict[str, str], is_right: bool
) -> None:
    """Other objects of a cluster may have names that begin otherwise, or are longer."""
    error = refused(server, an_object("", spec=LEAST) | {"metadata": metadata})
    assert (not error) is is_right
    assert is_right or "metadata.name must be lower-case letters, digits and" in error


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda f: f.name)
def test_every_example_is_taken(server: Cluster, file: Path, namespace: str) -> None:
    """With strict validation, tables of offers and all."""
    server.kubectl("create", f"--namespace={namespace}", f"--filename={file}")


@pytest.fixture
def plan(server: Cluster, namespace: str) -> Plan:
    """Plan with every field."""
    return Plan.create(server, namespace, A_SPEC)


def test_the_status_is_written_apart_from_the_spec(plan: Plan) -> None:
    """Neither way in changes the other, and only an edit makes a new generation."""
    before = plan.now()
    plan.put({**before, "status": {"attempt": 7}})
    plan.set_status({"attempt": 2})
    found = plan.now()
    assert found["status"]["attempt"] == 2
    assert found["metadata"]["generation"] == before["metadata"]["generation"] == 1
    plan.put({**found, "spec": LEAST})
    assert plan.now()["metadata"]["generation"] == 2


def test_the_whole_status_is_kept(plan: Plan) -> None:
    """As the types write it, nulls included: they are absent then."""
    whole = Status.from_json(A_STATUS, "status").to_json()
    plan.set_status(whole)
    assert plan.now()["status"] == A_STATUS
    plan.set_status(whole | {"plan": None, "workloadRef": None})
    read = Status.from_json(plan.now()["status"], "status")
    assert (read.plan, read.workload_ref) == (None, None)


def table(server: Cluster, plan: Plan, *words: str) -> list[list[str]]:
    """Rows that `kubectl get` shows, each as its cells but for the age."""
    shown = server.kubectl("get", *words, *plan.here).splitlines()
    return [re.split(r" {2,}", row.strip())[:-1] for row in shown]


def test_the_columns_are_what_people_look_for(plan: Plan, server: Cluster) -> None:
    """Amounts as people read them; what it waits for, whatever else was said."""
    assert table(server, plan, "tplan")[1] == ["a"]
    plan.set_status(A_STATUS)
    names = ["NAME", "GPUS", "PRODUCT", "PREDICTED", "OBSERVED", "STATUS"]
    cells = ["a", "4", "H100-80GB", "9.32 GiB", "9.32 GiB", "Trained"]
    for words in (("tplan",), ("trainingplans",), ("training",)):
        assert table(server, plan, *words) == [names, cells]
    more = {"COST": "24.5", "CLAIM": "ckpt", "CHECKPOINTS": "path/89ab"}
    wide = [[*names[:5], *more, names[5]], [*cells[:5], *more.values(), cells[5]]]
    assert table(server, plan, "tplan", "--output=wide") == wide


def test_fields_are_explained(server: Cluster) -> None:
    """By the sentences of the types, on a terminal."""

    def explained(path: str) -> str:
        return " ".join(server.kubectl("explain", f"tplan{path}").split())

    assert "asks for one training" in explained("")
    search = explained(".spec.search")
    assert "FIELD: search <Object>" in search
    assert "maxGPUs <integer> The most GPUs that a plan may take;" in search
    assert "minSamplesPerSecond <string> The slowest rate that will do" in search
    assert "enum: MinimizeGPUs, MinimizeMemory" in search
    assert "MinimizeCost: The least cost of the whole training." in search
    assert "Where the plan stands: written by Plimsoll alone." in explained(".status")
