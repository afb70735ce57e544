"""Files with a TrainingPlan, and what is said of those without."""

from __future__ import annotations

import json

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


@pytest.mark.parametrize("number", ["2e-5", "2.0e-5", "2E-5", "+2e-5", ".2e-4"])
def test_numbers_are_those_of_kubectl(number: str) -> None:
    """An exponent needs no point; what only resembles a number stays a text."""
    workload = '{entrypoint: "examples.tiny_gpt:workload"}'
    args = f"{{entrypoint: m:f, args: {{rate: {number}, revision: 2e5f}}}}"
    found = parse_manifest(PLAN.replace(workload, args), "plan.yaml")
    given = json.loads(found.spec.workload.args)
    assert given == {"rate": 2e-5, "revision": "2e5f"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a\n- b\n", "plan.yaml: got ['a', 'b'], allowed is a mapping of fields"),
        ("", "plan.yaml: holds no objects of kind TrainingPlan, but one is wanted"),
        ("# nothing\n---\n---\n", "plan.yaml: holds no objects of kind TrainingPlan"),
        ("hello", "plan.yaml: got 'hello', allowed is a mapping of fields"),
        (OFFERS, "plan.yaml: holds no objects of kind TrainingPlan"),
        (f"{PLAN}---\n{PLAN}", "plan.yaml: holds 2 objects"),
        ("a: [", "plan.yaml: not readable as YAML: line 1, column 5: "),
        ("\tkind: x", "YAML: line 1, column 1: found character '\\t' that cannot sta"),
        (
            PLAN + "kind: TrainingPlan\n",
            "plan.yaml: not readable as YAML: line 7, column 1: the field kind is given"
            " twice",
        ),
        (PLAN + "  search: *more\n", "line 7, column 11: found undefined alias 'more'"),
        (PLAN.replace("200", "2026-99-01"), "not readable as YAML: month must be in"),
        (PLAN.replace("200", "9" * 5000), "YAML: Exceeds the limit (4300 digits) for"),
        ("[" * 100_000, "not readable as YAML: maximum recursion depth exceeded"),
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
        (PLAN.replace("tiny-gpt", "7b"), "got '7b', allowed is lower-case letters"),
        (PLAN.replace("name: tiny-gpt, ", ""), "metadata.name: this field is missing"),
        (
            PLAN.replace("steps", "stepz"),
            "plan.yaml: spec.training.stepz: no such field",
        ),
        (
            PLAN.split("spec:", maxsplit=1)[0],
            "plan.yaml: spec: this field is missing; allowed is a mapping of fields",
        ),
        (
            PLAN.replace("kind: TrainingPlan\n", ""),
            "plan.yaml: kind: this field is missing; allowed is TrainingPlan",
        ),
        (PLAN.replace("200", "200.0"), "steps: got 200.0, allowed is a whole number"),
        (
            PLAN.replace("200", "-1"),
            "steps: got -1, allowed is a whole number at least",
        ),
        (PLAN.replace("32", "9" * 12), "got 999999999999, allowed is a whole number"),
        (
            PLAN + "  launch: {perGPU: {memory: 1 gb}}\n",
            "spec.launch.perGPU.memory: got '1 gb', allowed is an amount of memory such"
            " as 512Mi or 16Gi",
        ),
        (PLAN.replace("200", "2026-01-01"), "spec.training.steps: got datetime.date"),
        (OFFERS.replace("offers.csv", "offer.csv") + "---\n" + PLAN, "offers.csv"),
        (b"\x00\xff", "plan.yaml: not readable as YAML: at character 2: invalid star"),
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
