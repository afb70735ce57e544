"""The definition: brought up by an upgrade, kept for ever, the same as the file."""

from __future__ import annotations

import pytest
import yaml

from plimsoll_operator.names import GROUP, PLURAL
from tests.support.chart import CHART, of_kind, one, rendered

pytestmark = pytest.mark.control_plane


def test_the_definition_is_that_of_the_file() -> None:
    """Going through helm changes none of its numbers and texts."""
    crd = one(rendered(), "CustomResourceDefinition", f"{PLURAL}.{GROUP}")
    file = yaml.safe_load((CHART / "files" / "crd.yaml").read_text())
    assert crd["spec"] == file["spec"]


def test_it_stays_when_the_release_goes() -> None:
    """With it would go all TrainingPlans."""
    crd = one(rendered(), "CustomResourceDefinition", f"{PLURAL}.{GROUP}")
    assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert not (CHART / "crds").exists(), "helm never brings up what lies there"


def test_it_can_be_left_out() -> None:
    """For a second release in one cluster."""
    objects = rendered({"crds": {"enabled": False}})
    assert of_kind(objects, "CustomResourceDefinition") == {}
    assert one(objects, "Deployment")
