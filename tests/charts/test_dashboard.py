"""The dashboard: every expression is answered by a real Prometheus with something."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import prometheus_client
import pytest

from tests.support.chart import of_kind, one, rendered
from tests.support.metrics_sample import ALL_OF_IT, a_registry
from tests.support.prometheus import (
    DASHBOARD,
    EXPRESSIONS,
    PANELS,
    RULES,
    ask,
    filled_in,
    scraping,
)

pytestmark = pytest.mark.control_plane


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a Prometheus that has scraped all metrics twice."""
    served, thread = prometheus_client.start_http_server(
        0, addr="127.0.0.1", registry=a_registry()
    )
    folder = tmp_path_factory.mktemp("prometheus")
    with scraping(f"127.0.0.1:{served.server_port}", folder) as address:
        yield address
    served.shutdown()
    thread.join()
    served.server_close()


@pytest.mark.parametrize(
    "expression", [e for _, e in EXPRESSIONS], ids=[name for name, _ in EXPRESSIONS]
)
def test_a_panel_shows_something(expression: str, prometheus: str) -> None:
    """Its metrics and labels are those that the operator exports."""
    assert ask(prometheus, filled_in(expression))


def test_a_choice_offers_what_there_is(prometheus: str) -> None:
    """Namespaces and TrainingPlans are read from a metric that carries them."""
    offered = {}
    for variable in DASHBOARD["templating"]["list"]:
        query = variable["query"]
        if variable["type"] == "query":
            match = re.fullmatch(r"label_values\((.*), (\w+)\)", query["query"])
            assert match, query
            (series,) = ask(prometheus, filled_in(match[1]))
            offered[variable["name"]] = series["metric"][match[2]]
    assert offered == ALL_OF_IT


def test_legends_name_labels_that_are_there(prometheus: str) -> None:
    """A label that an expression drops would leave a line without a name."""
    for panel in PANELS:
        for target in panel.get("targets", ()):
            wanted = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            series = ask(prometheus, filled_in(target["expr"]))[0]
            assert wanted <= set(series["metric"]), target["expr"]


def test_a_rule_asks_for_metrics_that_there_are(prometheus: str) -> None:
    """A misspelt name would never fire."""
    for rule in RULES:
        names = re.findall(r"trainingplan_\w+", rule["expr"])
        assert names
        for name in names:
            assert ask(prometheus, name), name


def test_the_dashboard_knows_no_data_source() -> None:
    """Each panel asks the one that is chosen above; its own address never changes."""
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    first, *others = DASHBOARD["templating"]["list"]
    assert (first["name"], first["type"]) == ("datasource", "datasource")
    assert all(each["datasource"] == chosen for each in others)
    shown = [panel for panel in PANELS if panel["type"] != "row"]
    assert len(shown) > 15
    for panel in shown:
        assert panel["datasource"] == chosen
        assert all(target["datasource"] == chosen for target in panel["targets"])
    assert DASHBOARD["uid"] == "plimsoll"
    assert "id" not in DASHBOARD


def test_panels_stand_beside_each_other() -> None:
    """None covers another, none leaves the page."""
    taken: set[tuple[int, int]] = set()
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    for panel in PANELS:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert not taken & cells, panel["title"]
        taken |= cells


def test_grafana_finds_it_by_its_label() -> None:
    """If asked for; folder and namespace are a matter of Grafana's set-up."""
    name = "plimsoll-dashboard"
    assert name not in of_kind(rendered(), "ConfigMap")
    settings = {
        "enabled": True,
        "namespace": "grafana",
        "annotations": {"folder": "GPU"},
    }
    found = one(rendered({"grafanaDashboard": settings}), "ConfigMap", name)
    assert json.loads(found["data"]["plimsoll.json"]) == DASHBOARD
    assert found["metadata"]["namespace"] == "grafana"
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["metadata"]["annotations"] == {"folder": "GPU"}


@pytest.mark.parametrize("labels", [None, {"grafana_dashboard": None}])
def test_it_may_have_no_label_of_grafana(labels: dict[str, None] | None) -> None:
    """If something else than a label leads to it."""
    settings = {"enabled": True, "labels": labels}
    found = one(
        rendered({"grafanaDashboard": settings}), "ConfigMap", "plimsoll-dashboard"
    )
    assert "grafana_dashboard" not in found["metadata"]["labels"]
    assert json.loads(found["data"]["plimsoll.json"]) == DASHBOARD
