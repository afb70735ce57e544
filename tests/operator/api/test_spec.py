"""What a person may write in a manifest, and what is said where it is wrong."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from plimsoll_operator.api.record import ApiRecord
from plimsoll_operator.api.spec import LaunchPolicy, TrainingPlanSpec, parse_spec
from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.records.objective import Goal

LEAST: dict[str, Any] = {
    "workload": {"entrypoint": "examples.tiny_gpt:workload"},
    "training": {"globalBatchSize": 32, "steps": 200},
}


def test_the_least_spec_has_defaults_for_all_else() -> None:
    """Entry point, batch and steps are all that a person must say."""
    found = parse_spec(LEAST)
    assert found.search.objective is Goal.MINIMIZE_GPUS
    assert found.search.rate_floor == Decimal("0.5")
    assert found.launch.policy is LaunchPolicy.LAUNCH
    assert found.launch.require_certified
    assert found.run_policy.oom_replan_limit == 2


def test_a_spec_is_written_as_it_is_read() -> None:
    """In camel case with GPU in capitals; arguments are mappings again."""
    given = LEAST | {
        "workload": {"entrypoint": "a:b", "args": {"width": 8, "depth": [1, None]}},
        "search": {"maxGPUs": 4, "minSamplesPerSecond": "1.5"},
        "launch": {"perGPU": {"memory": "512Mi"}},
        "runPolicy": {"oomReplanLimit": 1},
    }
    found = parse_spec(given)
    written = found.to_json()
    assert parse_spec(written) == found
    for part in ("workload", "search", "launch", "runPolicy"):
        named = written[part]
        assert isinstance(named, dict)
        assert {name: named[name] for name in given[part] if name != "perGPU"} == {
            name: value for name, value in given[part].items() if name != "perGPU"
        }
    assert written["launch"]["perGPU"] == {"cpu": "4", "memory": "512Mi"}  # type: ignore[index]


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (
            {"search": {"maxGpus": 4}},
            "spec.search.maxGpus: no such field; did you mean",
        ),
        ({"serach": {}}, "spec.serach: no such field; did you mean search?"),
        (
            {"training": {"globalBatchSize": -1, "steps": 1}},
            "spec.training.globalBatchSize: got -1, allowed is a whole number",
        ),
        ({"training": {"steps": 1}}, "spec.training.globalBatchSize: this field is"),
        ({"launch": {"perGPU": {"memory": "1 gb"}}}, "an amount of memory such as"),
        ({"launch": {"perGPU": {"cpu": "-4"}}}, "spec.launch.perGPU.cpu: got '-4'"),
        ({"search": {"rateFloor": 0.5}}, "at most 1, in quotes"),
        ({"search": {"rateFloor": "1.5"}}, "spec.search.rateFloor: got '1.5', allowed"),
        ({"workload": {"entrypoint": "a.b"}}, "allowed is package.module:function"),
        (
            {"workload": {"entrypoint": "a:b", "args": [1]}},
            "spec.workload.args: got [1]",
        ),
        (
            {"workload": {"entrypoint": "a:b", "args": {"x": float("nan")}}},
            "spec.workload.args: got {'x': nan}, allowed is a mapping",
        ),
        ({"suspend": "yes"}, "spec.suspend: got 'yes', allowed is true or false"),
        ({"override": {"cuts": [0, -1]}}, "spec.override.cuts[1]: got -1"),
        ({"launch": {"policy": "planonly"}}, "one of Launch, PlanOnly"),
        ({"template": "x" * 10}, "spec.template"),
    ],
)
def test_what_is_wrong_is_named_with_its_path(part: dict[str, Any], said: str) -> None:
    """As it stands in the manifest, with what is allowed."""
    with pytest.raises(InvalidFieldError) as caught:
        parse_spec(LEAST | part)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [None, [], "text", 3])
def test_a_spec_is_a_mapping(value: object) -> None:
    """Whatever else YAML may hold is refused."""
    with pytest.raises(InvalidFieldError, match=r"spec: got .* a mapping of fields"):
        parse_spec(value)


def test_names_keep_their_abbreviations() -> None:
    """But for those that open a name."""
    names = map(
        ApiRecord.wire_name, ("max_gpus", "gpus", "per_gpu", "oom_replan_limit")
    )
    assert list(names) == ["maxGPUs", "gpus", "perGPU", "oomReplanLimit"]


def test_equal_arguments_make_equal_specs() -> None:
    """Whatever the order of their names: the request key depends on it."""
    one = LEAST["workload"] | {"args": {"a": 1, "b": {"d": 2, "c": 3}}}
    two = LEAST["workload"] | {"args": {"b": {"c": 3, "d": 2}, "a": 1}}
    made: set[TrainingPlanSpec] = {
        parse_spec(LEAST | {"workload": each}) for each in (one, two)
    }
    assert len(made) == 1
