"""The tables: as long as what goes into them, and of no one database system."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Table
from sqlalchemy.engine.url import make_url
from sqlalchemy.schema import CreateTable

import plimsoll_operator.store
from plimsoll_operator.store.rows import LABEL_LENGTH, Base
from plimsoll_planner.records.device_overhead import OverheadKey
from plimsoll_planner.records.record import shapes_of
from plimsoll_planner.records.shape import TextShape

PACKAGE = Path(plimsoll_operator.store.__file__).parent


@pytest.mark.parametrize("table", Base.metadata.sorted_tables, ids=str)
def test_every_table_can_be_made_on_postgresql(table: Table) -> None:
    """Whole numbers have 64 bits there as well, and constraints have our names."""
    dialect = make_url("postgresql://").get_dialect()
    text = str(CreateTable(table).compile(dialect=dialect()))
    assert "INTEGER" not in text
    assert f"CONSTRAINT {table.name}_key PRIMARY KEY" in text


@pytest.mark.parametrize(
    ("word", "modules"),
    [
        ("sqlite3", {"sqlite.py"}),
        ("PRAGMA", {"sqlite.py"}),
        ("psycopg", {"postgresql.py"}),
        ("pg_", {"postgresql.py"}),
        ("exec_driver_sql", {"sqlite.py", "postgresql.py"}),
        ("dialects", set[str]()),
    ],
)
def test_each_system_stands_in_one_module(word: str, modules: set[str]) -> None:
    """What is one database system's own is in its module and nowhere else."""
    found = {file.name for file in PACKAGE.rglob("*.py") if word in file.read_text()}
    assert found == modules


def test_the_fields_of_a_key_fit_their_columns() -> None:
    """As long as the record allows."""
    for name, shape in shapes_of(OverheadKey).items():
        assert isinstance(shape, TextShape), name
        assert shape.bound.longest == LABEL_LENGTH, name
