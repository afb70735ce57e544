"""Writes the CustomResourceDefinition that the chart carries.

In: the types of a TrainingPlan. Out: charts/plimsoll/files/crd.yaml. Run by `make
docs`; tests/gates/test_formats.py compares.
"""

from __future__ import annotations

import yaml

from plimsoll_operator.api.definition import definition
from tools.formats import ROOT

TARGET = ROOT / "charts" / "plimsoll" / "files" / "crd.yaml"
HEADER = "# Made from the types by `make docs`; do not edit.\n"


class Dumper(yaml.SafeDumper):
    """Writes what stands in two places twice: a reader of YAML needs no anchors."""

    def ignore_aliases(self, data: object) -> bool:
        """Name nothing, so that nothing is referred to."""
        del data
        return True


def page() -> str:
    """Whole file."""
    return HEADER + yaml.dump(definition(), Dumper=Dumper, sort_keys=False, width=88)


if __name__ == "__main__":
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(page())
