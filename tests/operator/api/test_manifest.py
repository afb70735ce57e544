"""Files with a TrainingPlan, and what is said of those without."""

from __future__ import annotations

import pytest

from plimsoll_operator.api.manifest import parse_manifest
from plimsoll_planner.errors import InvalidInputError

PLAN = """\
apiVersion: plimsoll.dev/v1alpha1
kind: TrainingPlan
metadata: {name: tiny-gpt, labels: {team: "7"}}
spec:
  workload: {entrypoint: "examples.tiny_gpt:workload"}
  training: {globalBatchSize: 32, steps: 200}
"""
OFFERS = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: gpu-offers}
data: {offers.csv: "a,b"}
"""


def test_a_manifest_has_one_plan_and_its_tables() -> None:
    """Several documents, empty ones among them; other metadata is left alone."""
    found = parse_manifest(f"---\n{OFFERS}---\n---\n{PLAN}", "plan.yaml")
    assert found.name == "tiny-gpt"
    assert found.spec.training.steps == 200
    assert found.tables == {"gpu-offers": "a,b"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a\n- b\n", "plan.yaml: got ['a', 'b'], allowed is a mapping of fields"),
        ("", "plan.yaml: holds 0 objects of kind TrainingPlan, but one is wanted"),
        (f"{PLAN}---\n{PLAN}", "plan.yaml: holds 2 objects"),
        ("a: [", "plan.yaml: not readable as YAML"),
        ("\tkind: x", "plan.yaml: not readable as YAML"),
        (PLAN + "kind: TrainingPlan\n", "the field kind is given twice"),
        (PLAN + "1: 2\n", "the field 1 is no text: quote it"),
        (PLAN.replace("TrainingPlan", "TrainPlan"), "plan.yaml: kind: got 'TrainPlan'"),
        (PLAN.replace("v1alpha1", "v1"), "allowed is plimsoll.dev/v1alpha1"),
        (
            PLAN + "statsu: {}\n",
            "plan.yaml: statsu: no such field; did you mean status?",
        ),
        (
            PLAN.replace("tiny-gpt", "Tiny_GPT"),
            "plan.yaml: metadata.name: got 'Tiny_GPT'",
        ),
        (PLAN.replace("tiny-gpt", "n" * 41), "1 to 40 characters"),
        (PLAN.replace("name: tiny-gpt, ", ""), "metadata.name: this field is missing"),
        (
            PLAN.replace("steps", "stepz"),
            "plan.yaml: spec.training.stepz: no such field",
        ),
        (
            PLAN.split("spec:", maxsplit=1)[0],
            "plan.yaml: spec: got None, allowed is a mapping",
        ),
        (PLAN.replace("200", "2026-01-01"), "spec.training.steps: got datetime.date"),
        (OFFERS.replace("offers.csv", "offer.csv") + "---\n" + PLAN, "offers.csv"),
        (b"\xff\xfe\x00", "plan.yaml: not readable as YAML"),
    ],
)
def test_what_is_no_manifest_is_refused_in_one_line(
    text: str | bytes, said: str
) -> None:
    """With the file, the field and what is allowed."""
    with pytest.raises(InvalidInputError) as caught:
        parse_manifest(text, "plan.yaml")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
