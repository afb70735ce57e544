"""Tables of an answer: the tensor degree stands there where layers are split."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("numpy")

from plimsoll_cli.output.answer_tables import (
    alternatives_table,
    mesh_text,
    tuples_legend,
    tuples_table,
)
from plimsoll_planner.records.engine import Sharding
from plimsoll_planner.records.model_profile import Variant
from plimsoll_planner.records.plan import HybridPlan, PodShape
from tests.support import builders as b


def headings(columns: list[object]) -> list[str]:
    """Headings of a table."""
    return [str(getattr(column, "header", "")) for column in columns]


def a_split_plan() -> HybridPlan:
    """Build two stages of one replica each, in tensor groups of 2."""
    both = Variant(tensor_degree=2, sequence_parallel=True)
    plan = b.a_plan()
    stages = tuple(replace(stage, variant=both, data_degree=1) for stage in plan.stages)
    pods = PodShape(num_pods=1, gpus_per_pod=4, host_memory_bytes_per_pod=0)
    count = 2 * plan.num_micro_batches
    return replace(plan, stages=stages, pods=pods, num_micro_batches=count)


def test_a_mesh_is_told_with_its_tensor_degree() -> None:
    """Nothing is said of it where no layer is split."""
    assert mesh_text(b.a_plan()) == "2 stages x 2 replicas"
    assert mesh_text(a_split_plan()) == (
        "2 stages x 1 replica x tensor degree 2 (sequence parallel)"
    )


def test_alternatives_have_a_column_if_one_is_split() -> None:
    """Both plans then have their degree in it."""
    whole = alternatives_table([b.a_plan()], None)
    assert "TENSOR" not in headings(list(whole.columns))
    mixed = alternatives_table([b.a_plan(), a_split_plan()], None)
    place = headings(list(mixed.columns)).index("TENSOR")
    assert list(mixed.columns[place].cells) == ["1", "2"]


def test_alternatives_say_which_divide_state() -> None:
    """In a column that is there if one of them does."""
    plan = b.a_plan()
    level = Sharding.PARAMETERS
    stages = tuple(replace(stage, sharding=level) for stage in plan.stages)
    mixed = alternatives_table([plan, replace(plan, stages=stages)], None)
    place = headings(list(mixed.columns)).index("SHARDED")
    assert list(mixed.columns[place].cells) == ["none", "parameters"]
    unlike = alternatives_table([plan], None)
    assert "SHARDED" not in headings(list(unlike.columns))


def test_tuples_of_a_count_are_told_apart() -> None:
    """Plain and sequence parallel ones of one mesh are two rows, with words for it."""
    one = b.decisions(2)
    fields = {name: getattr(one, name) * 3 for name in type(one).__slots__}
    fields |= {
        "pipeline_degree": (2, 1, 1),
        "tensor_degree": (1, 2, 2),
        "sequence_parallel": (False, False, True),
    }
    count = b.a_count(2, decisions=b.decisions(2, **fields))
    table = tuples_table(count, (b.an_offer(),))
    place = headings(list(table.columns)).index("TENSOR")
    assert sorted(map(str, table.columns[place].cells)) == ["1", "2", "2 sp"]
    assert any("a tensor degree" in line for line in tuples_legend(count))
    whole = b.a_count(2)
    assert "TENSOR" not in headings(list(tuples_table(whole, (b.an_offer(),)).columns))
    assert not any("a tensor degree" in line for line in tuples_legend(whole))
