"""The pods of the example are taken where only restricted ones are, as pages advise.

Rendered as the operator renders them, and made in a dry run by a real API server.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll_operator.api.spec import TrainingPlanSpec, parse_spec
from plimsoll_operator.backends.admission import UNSAVED
from plimsoll_operator.objects.pod_template import PodParts, Release, pod_template
from plimsoll_planner.records.task import Command, Task, TaskKind
from tests.lab.cluster import Cluster

ROOT = Path(__file__).parents[2]
LEVEL = "pod-security.kubernetes.io/enforce=restricted"
MANIFEST = yaml.safe_load((ROOT / "examples" / "tiny-gpt.yaml").read_text())
FINETUNE = yaml.safe_load((ROOT / "examples" / "finetune.yaml").read_text())
RELEASE = Release(runtime_image="registry.example/runtime:1", ingest_url="http://there")


def a_pod(spec: TrainingPlanSpec) -> dict[str, Any]:
    """Pod of a worker group with two GPUs."""
    command = Command(words=("-m", "plimsoll_trainer"))
    parts = PodParts(
        task=Task(
            child_kind=TaskKind.TRAIN, subject="1", commands=(command,), folder=""
        ),
        labels={},
        num_gpus=2,
        per_gpu=spec.launch.per_gpu,
    )
    made = pod_template(json.loads(spec.template), parts, RELEASE)
    metadata = {**made["metadata"], "name": "tiny-gpt-train-1-0"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata} | {
        "spec": made["spec"]
    }


@pytest.mark.control_plane
def test_a_restricted_namespace_takes_the_pods_of_the_example(
    control_plane: Cluster, namespace: str
) -> None:
    """And not those of the same template without its security context."""
    control_plane.kubectl("label", "namespace", namespace, LEVEL)
    words = ("create", "--dry-run=server", "-n", namespace, "-f", "-")
    pod = a_pod(parse_spec(MANIFEST["spec"]))
    control_plane.kubectl(*words, stdin=json.dumps(pod))
    del pod["spec"]["containers"][0]["securityContext"]
    done = control_plane.run("kubectl", *words, stdin=json.dumps(pod), check=False)
    assert "restricted" in done.stderr


def test_the_image_of_the_examples_runs_as_a_number() -> None:
    """A kubelet cannot tell of a name that it is not root's."""
    recipe = (ROOT / "examples" / "Dockerfile").read_text()
    last = recipe.rpartition("\nFROM ")[2]
    users = re.findall(r"^USER (\S+)$", last, re.MULTILINE)
    assert re.fullmatch(r"[1-9][0-9]*:[1-9][0-9]*", users[-1])


def test_the_page_shows_what_is_remarked_on_the_example() -> None:
    """It saves every so many steps, and names no claim to save to."""
    checkpoint = parse_spec(MANIFEST["spec"]).checkpoint
    assert checkpoint.every_steps
    assert not checkpoint.claim_name
    page = (ROOT / "docs" / "cluster.md").read_text()
    [event] = [line for line in page.splitlines() if "Normal    Valid " in line]
    assert event.endswith(f" {UNSAVED}")


def test_the_page_shows_what_the_example_has() -> None:
    """Lines added to a manifest for a cluster, word for word."""
    page = (ROOT / "docs" / "cluster.md").read_text()
    section = page.partition("\n## The first plan\n")[2].partition("\n## ")[0]
    shown = yaml.safe_load(section.partition("```yaml\n")[2].partition("```")[0])
    assert shown["spec"].items() <= MANIFEST["spec"].items()


def test_the_page_shows_how_a_claim_stands_in_the_example_of_a_fine_tune() -> None:
    """As volume of the template, and for checkpoints."""
    page = (ROOT / "docs" / "cluster.md").read_text()
    section = page.partition("\n## A fine-tune\n")[2].partition("\n## ")[0]
    shown = yaml.safe_load(section.split("```yaml\n")[2].partition("```")[0])["spec"]
    has = FINETUNE["spec"]
    assert shown["checkpoint"] == has["checkpoint"]
    [short], [whole] = (
        one["template"]["spec"].pop("containers") for one in (shown, has)
    )
    assert short.items() <= whole.items()
    assert shown["template"]["spec"].items() <= has["template"]["spec"].items()
