"""The admission policy on docs/security.md bounds what its text says it bounds.

Applied word for word to a real API server, and tried with plans on either side of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll_operator.api.spec import parse_spec
from plimsoll_operator.rules.question import limits_of
from tests.lab.cluster import Cluster
from tests.lab.trainingplans import CREATE, LEAST, an_object, served

pytestmark = pytest.mark.control_plane

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
SAMPLES = [
    list(yaml.safe_load_all(text))
    for text in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
]
[POLICY] = [documents for documents in SAMPLES if "Policy" in documents[0]["kind"]]
[UNFIXED] = re.findall(r"refuses `override`: `(.*?)`\.", PAGE)
NAMESPACE, MOST = "research", 32
BEYOND: list[dict[str, Any]] = [
    {"search": {"maxGPUs": 33}},
    {"override": {"gpus": 33}},
    {"override": {"pipeline": 33}},
    {"override": {"data": 33}},
    {"override": {"pipeline": 3, "data": 11}},
    {"override": {"cuts": list(range(33))}},
    {"override": {"inFlightCaps": [1] * 33}},
    {"override": {"cuts": list(range(11)), "data": 3}},
    {"override": {"pipeline": 256, "data": 256}},
]
WITHIN: list[dict[str, Any]] = [
    {},
    {"search": {"maxGPUs": 32}},
    {"override": {"gpus": 32}},
    {"override": {"pipeline": 8, "data": 4}},
    {"override": {"cuts": list(range(8)), "data": 4, "microBatch": 1}},
]


def a_spec(more: dict[str, Any]) -> dict[str, Any]:
    """Spec that the policy has nothing else against."""
    return {**LEAST, **more, "launch": {"queueName": NAMESPACE}}


@pytest.fixture(scope="module")
def plans(control_plane: Cluster) -> Iterator[Cluster]:
    """Server that knows the kind."""
    yield from served(control_plane)


@pytest.fixture(scope="module")
def server(plans: Cluster) -> Iterator[Cluster]:
    """Server on which the policy is in force."""
    plans.kubectl("create", "namespace", NAMESPACE)
    plans.apply(*POLICY)
    plans.wait_until("the policy", lambda: bool(refusal(plans, BEYOND[0])))
    yield plans
    documents = {"apiVersion": "v1", "kind": "List", "items": POLICY}
    plans.kubectl("delete", "--filename=-", stdin=json.dumps(documents))
    plans.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def refusal(server: Cluster, more: dict[str, Any]) -> str:
    """Refusal of a plan by the server; empty if it takes the plan."""
    sent = json.dumps(an_object("a", spec=a_spec(more)))
    words = (*CREATE, "--namespace", NAMESPACE)
    return server.run(*words, stdin=sent, check=False).stderr


@pytest.mark.parametrize("more", BEYOND, ids=json.dumps)
def test_no_field_leads_beyond(server: Cluster, more: dict[str, Any]) -> None:
    """Each of these plans would be searched with more GPUs than the policy allows."""
    assert limits_of(parse_spec(a_spec(more))).max_gpus > MOST
    assert "denied request" in refusal(server, more)


@pytest.mark.parametrize("more", WITHIN, ids=json.dumps)
def test_what_is_within_is_taken(server: Cluster, more: dict[str, Any]) -> None:
    """Also where parts of a plan are fixed."""
    assert limits_of(parse_spec(a_spec(more))).max_gpus <= MOST
    assert refusal(server, more) == ""


def test_override_can_be_refused_as_a_whole(server: Cluster) -> None:
    """By the other expression of the page, here among the fields' own."""
    bounds = POLICY[0]["spec"]["validations"]
    validations = [*bounds, {"expression": UNFIXED, "message": "nothing is fixed here"}]
    server.apply(POLICY[0] | {"spec": POLICY[0]["spec"] | {"validations": validations}})
    fixed = {"override": {"microBatch": 1}}
    server.wait_until("the policy", lambda: "is fixed here" in refusal(server, fixed))
    assert refusal(server, {}) == ""
    server.apply(POLICY[0])


def test_a_plan_for_another_queue_is_refused(server: Cluster) -> None:
    """In the words that the page shows."""
    sent = an_object("tiny-gpt", spec={**LEAST, "launch": {"queueName": "other"}})
    words = (*CREATE, "--namespace", NAMESPACE)
    done = server.run(*words, stdin=json.dumps(sent), check=False)
    assert done.stderr.strip() in PAGE
