"""Writes docs/metrics.md: the metrics of the operator, and the alerts on them.

In: the operator's own instruments, each with a sample, and the chart's alert rules.
Out: a table of each. Run by `make docs`; tests/gates/test_formats.py compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml
from prometheus_client import CollectorRegistry, Metric

from tests.support.metrics_sample import a_registry
from tools.formats import ROOT, table

TARGET = ROOT / "docs" / "metrics.md"
RULES = ROOT / "charts" / "plimsoll" / "files" / "rules.yaml"
OF_A_PLAN = "trainingplan"
"""The label of metrics that `metrics.plans` of the chart switches off."""
OF_BUCKETS = "le"
SUFFIXES = {"counter": "_total", "info": "_info"}
"""Endings of Prometheus' names, beside those of the instruments."""
HEADER = """\
# Metrics

Made from the operator's instruments and the chart's rules by `make docs`; do not edit.

[cluster.md](cluster.md#metrics-and-alerts) says how a Prometheus comes to them. The
names of a histogram end in `_bucket`, `_sum` and `_count`. A label whose values are
few has them behind it.
"""
OF_PLANS = """
## Of each TrainingPlan

Published unless `metrics.plans` is false, by the replica that decides. `namespace` and
`trainingplan` are those of the TrainingPlan.
"""
ALERTS = """
## Alerts

The rules of `metrics.prometheusRule`.
"""


def name_of(family: Metric) -> str:
    """Name of a metric in Prometheus."""
    return family.name + SUFFIXES.get(family.type, "")


def labels_of(family: Metric) -> dict[str, list[str]]:
    """Values of each label that a sample has."""
    found: dict[str, list[str]] = {}
    for sample in family.samples:
        for label, value in sample.labels.items():
            values = found.setdefault(label, [])
            if value not in values:
                values.append(value)
    found.pop(OF_BUCKETS, None)
    return found


def labels_text(family: Metric) -> str:
    """Labels of a metric for people."""
    texts: list[str] = []
    for label, values in labels_of(family).items():
        few = ", ".join(f"`{value}`" for value in values) if len(values) > 1 else ""
        texts.append(f"`{label}`: {few}" if few else f"`{label}`")
    return "; ".join(texts)


def metric_rows(registry: CollectorRegistry, *, per_plan: bool) -> Iterator[list[str]]:
    """Yield the rows of all metrics, by name: those of single plans, or the others."""
    for family in sorted(registry.collect(), key=name_of):
        if (OF_A_PLAN in labels_of(family)) is per_plan:
            yield [
                f"`{name_of(family)}`",
                family.type,
                labels_text(family),
                family.documentation,
            ]


def alert_rows() -> Iterator[list[str]]:
    """Yield the rows of all alerts, as the rules have them."""
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield [
                f"`{rule['alert']}`",
                rule["labels"]["severity"],
                rule.get("for", "at once"),
                plain(rule, "summary"),
                plain(rule, "description"),
            ]


def plain(rule: dict[str, Any], annotation: str) -> str:
    """Text of an alert with words where Prometheus puts values."""
    text = re.sub(r"{{ \$labels\.(\w+) }}", r"*\1*", rule["annotations"][annotation])
    return re.sub(r"{{ \$value[^}]*}}", "*so much*", text).replace("|", "\\|")


def page() -> str:
    """Whole page."""
    registry = a_registry()
    header = ("metric", "type", "labels", "meaning")
    alert_header = ("alert", "severity", "after", "what", "meaning, and what to do")
    lines = [
        "\n## Of the operator\n",
        *table(header, metric_rows(registry, per_plan=False)),
        OF_PLANS,
        *table(header, metric_rows(registry, per_plan=True)),
        ALERTS,
        *table(alert_header, alert_rows()),
    ]
    return HEADER + "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.write_text(page())
