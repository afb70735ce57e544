"""Edits of a plan and their times: rules of the definition, on a real API server.

The status of a plan says that it was launched, or is over; every field is edited then.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from plimsoll_operator.api.definition import LAUNCHED, MAY_CHANGE, OVER
from plimsoll_operator.api.spec import TrainingPlanSpec, parse_spec
from plimsoll_planner.records.bounds import LARGEST_INTEGER
from plimsoll_planner.records.record import shapes_of
from tests.lab.cluster import Cluster
from tests.lab.trainingplans import (
    FROM_STDIN,
    LEAST,
    Plan,
    a_trial,
    establish,
    refused,
    trial_definition,
)
from tests.support.api_values import A_SPEC, A_STATUS, changed, without_nulls

pytestmark = pytest.mark.control_plane

FIELDS = [TrainingPlanSpec.wire_name(field) for field in shapes_of(TrainingPlanSpec)]
FREE = [TrainingPlanSpec.wire_name(field) for field in MAY_CHANGE]
FORBIDDEN = re.compile(r"spec\.(\w+): Forbidden: (.*)")
OLDER = "older.lab.plimsoll.dev"


@pytest.fixture
def plan(server: Cluster, namespace: str) -> Plan:
    """Plan with every field."""
    return Plan.create(server, namespace, A_SPEC)


ANOTHER: dict[str, Any] = {
    "suspend": False,
    "workload": A_SPEC["workload"] | {"args": {"width": 8}},
    "training": A_SPEC["training"] | {"steps": 201},
    "checkpoint": A_SPEC["checkpoint"] | {"everySteps": 0},
    "search": A_SPEC["search"] | {"offers": {"configMap": "others"}},
    "override": A_SPEC["override"] | {"cuts": [0, 4]},
    "profile": A_SPEC["profile"] | {"source": "Auto"},
    "launch": A_SPEC["launch"] | {"perGPU": {"cpu": "1", "memory": "512Mi"}},
    "runPolicy": A_SPEC["runPolicy"] | {"backoffLimit": 2},
    "template": {"metadata": A_SPEC["template"]["spec"]},
}
"""Each field of `A_SPEC` with one change."""
LEFT_OUT: dict[str, Any] = {
    "search": without_nulls(A_SPEC["search"] | {"deadlineSeconds": None}),
    "override": without_nulls(A_SPEC["override"] | {"recomputedLayers": None}),
    "template": {"spec": {"nodeSelector": {"a": "b"}}},
    "runPolicy": without_nulls(A_SPEC["runPolicy"] | {"runningSeconds": None}),
}
"""The same where something that has no default is left out."""
EDITS = [
    *ANOTHER.items(),
    *LEFT_OUT.items(),
    *((field, None) for field in FIELDS if field not in LEAST),
]


def test_no_field_was_forgotten_here() -> None:
    """Each is edited, and differs."""
    assert list(ANOTHER) == FIELDS
    assert all(value != A_SPEC[field] for field, value in EDITS)


def edited(field: str, value: object) -> object:
    """Spec with another value of a field, without it for None."""
    return without_nulls(A_SPEC | {field: value})


@pytest.mark.parametrize(
    "conditions",
    [
        None,
        {},
        {"Accepted": "True", "Succeeded": "Unknown"},
        {"Launched": "False", "Succeeded": "Unknown"},
        {"Launched": "Unknown"},
    ],
)
def test_every_edit_is_planned_anew_while_no_rank_runs(
    plan: Plan, conditions: dict[str, str] | None
) -> None:
    """Before any status, before the first attempt, and between two."""
    if conditions is not None:
        plan.say(**conditions)
    specs = [edited(*edit) for edit in EDITS]
    assert plan.tried(specs) == (len(EDITS), "")


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ({"Launched": "True", "Succeeded": "Unknown"}, LAUNCHED),
        ({"Launched": "True", "Succeeded": "True"}, OVER),
        ({"Launched": "True", "Succeeded": "False"}, OVER),
        ({"Launched": "False", "Succeeded": "False"}, OVER),
        ({"Succeeded": "True"}, OVER),
    ],
)
def test_what_was_launched_stays_as_it_is(
    plan: Plan, conditions: dict[str, str], message: str
) -> None:
    """But for `suspend` and `runPolicy`; the message says what to do instead."""
    plan.say(**conditions)
    frozen = [edit for edit in EDITS if edit[0] not in FREE]
    num_taken, errors = plan.tried(edited(*edit) for edit in frozen)
    assert num_taken == 0
    assert FORBIDDEN.findall(errors) == [(field, message) for field, _ in frozen]
    free = [edited(*edit) for edit in EDITS if edit[0] in FREE]
    assert plan.tried(free) == (len(free), "")


def test_what_is_required_is_not_removed(plan: Plan) -> None:
    """Nor does a rule end in an error over it."""
    plan.say(Launched="True")
    for field in LEAST:
        num_taken, error = plan.tried([edited(field, None)])
        assert num_taken == 0
        assert f"spec.{field}: Required value" in error
        assert "no such key" not in error


def test_all_that_is_edited_is_named(plan: Plan) -> None:
    """Each field, and once."""
    plan.say(Launched="True")
    _, errors = plan.tried([ANOTHER])
    assert [field for field, _ in FORBIDDEN.findall(errors)] == [
        field for field in FIELDS if field not in FREE
    ]


def test_null_is_no_edit(server: Cluster, namespace: str) -> None:
    """Who writes it means what is absent, before and after."""
    search = {"deadlineSeconds": None, "maxMicroBatch": 4}
    given = LEAST | {"search": search, "override": None}
    plan = Plan.create(server, namespace, given)
    plan.say(Launched="True")
    plan.set_status({"attempt": 1})
    again = LEAST | {"search": {"maxMicroBatch": 4, "minSamplesPerSecond": None}}
    assert plan.tried([given, again]) == (2, "")


def test_the_largest_spec_is_judged_in_time(server: Cluster, namespace: str) -> None:
    """A rule that costs too much ends in an error: then no status could be written."""
    layers = [LARGEST_INTEGER] * 10_000
    wide = {f"{number:05}": "x" * 1000 for number in range(120)}
    spec = A_SPEC | {
        "workload": {"entrypoint": "a:b", "args": {"a": "b" * 16_000}},
        "override": {"cuts": layers, "recomputedLayers": layers},
        "template": {"metadata": {"annotations": wide}},
    }
    parse_spec(spec)
    plan = Plan.create(server, namespace, spec)
    plan.set_status(A_STATUS)
    assert plan.tried([spec | {"suspend": False}]) == (1, "")
    other = {"cuts": layers, "recomputedLayers": [*layers[1:], 0]}
    num_taken, error = plan.tried([spec | {"override": other}])
    assert (num_taken, FORBIDDEN.findall(error)) == (0, [("override", OVER)])


def test_what_a_later_definition_refuses_does_not_stop_a_plan(
    control_plane: Cluster, namespace: str
) -> None:
    """An unchanged value is not judged again by a bound that was tightened."""
    made = trial_definition(OLDER)
    place = ("spec", "versions", 0, "schema", "openAPIV3Schema", "properties", "spec")
    bound = (*place, "properties", "search", "properties", "maxGPUs", "maximum")
    sent = a_trial(OLDER, spec=LEAST | {"search": {"maxGPUs": 100_000}})
    establish(control_plane, changed(made, bound, 200_000), sent)
    here = f"--namespace={namespace}"
    control_plane.kubectl("create", FROM_STDIN, here, stdin=json.dumps(sent))
    control_plane.apply(made)
    control_plane.wait_until(
        "the tightened bound", lambda: bool(refused(control_plane, sent))
    )
    patch = ("kubectl", "patch", f"trials.{OLDER}", "trial-0", here, "--type=merge")
    for part in ({"status": {"attempt": 1}}, {"spec": {"suspend": True}}):
        control_plane.run(*patch, f"--patch={json.dumps(part)}")
    other = json.dumps({"spec": {"search": {"maxGPUs": 100_001}}})
    assert control_plane.run(*patch, f"--patch={other}", check=False).returncode
    control_plane.kubectl("delete", "crd", made["metadata"]["name"])
