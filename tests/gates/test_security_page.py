"""Figures on docs/security.md are those of the code."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from plimsoll_operator.control.configuration import Configuration
from plimsoll_operator.ingest import assignments, identity, server
from plimsoll_operator.names import TOKEN_AUDIENCE
from plimsoll_operator.objects.manifests import PORT
from plimsoll_operator.objects.pod_template import CODE, TOKEN_S

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
LIMITS_MIB = {route.path: route.limit_bytes // server.MIB for route in server.ROUTES}
[PROFILE_MIB] = [LIMITS_MIB.pop("/v1/profile")]
[OTHERS_MIB] = set(LIMITS_MIB.values())
EACH_MIB = server.MOST_BYTES_EACH // server.MIB
ALL_MIB = server.MOST_BYTES // server.MIB
KNOWN_S = max(identity.TOKEN_KNOWN_S, identity.REFUSAL_KNOWN_S, identity.JOB_KNOWN_S)
POD_S = identity.POD_KNOWN_S
IN_WORDS: dict[float, str] = {3600: "the hour", 60: "a minute"}
PORTS = {field.name: field.default for field in dataclasses.fields(Configuration)}


@pytest.mark.parametrize(
    "text",
    [
        f"{PROFILE_MIB} MiB for a profile and {OTHERS_MIB} MiB for the others",
        f"{server.PER_MIN} reports of a pod a minute",
        f"{EACH_MIB} MiB of one namespace and {ALL_MIB} MiB of all in work at a time",
        f"kept for {KNOWN_S:g} s at most, those about pods for {POD_S:g} s",
        f"the kubelet renews it within {IN_WORDS[TOKEN_S]}",
        f"A pod that has ended for {IN_WORDS[assignments.FINISHED_S]}",
        f"A projected token for the audience `{TOKEN_AUDIENCE}`",
        f"mounts read-only at `{CODE}`",
        f"operator: port {PORTS['http_port']} |",
        f"operator: port {PORTS['ingest_port']} |",
        f"ranks of a worker group: port {PORT} ",
    ],
)
def test_a_figure_is_that_of_the_code(text: str) -> None:
    """Whoever sizes a cluster or writes a policy by this page relies on it."""
    assert text in PAGE


def test_every_route_has_a_row() -> None:
    """With what is looked at, and no other route."""
    rows = {line.split("`")[1] for line in PAGE.splitlines() if line[:6] == "| `/v1"}
    assert rows == {route.path for route in server.ROUTES}
