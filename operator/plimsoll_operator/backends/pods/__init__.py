"""Back ends of a cluster: a file for each, with everything that holds for it alone.

    job   Indexed Jobs

A new back end is a file here whose `BACKEND` is a `LaunchBackend`. The chart gives the
rights on its objects.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll_operator.api.spec import Backend, TrainingPlanSpec
from plimsoll_operator.backends.launch_backend import LaunchBackend
from plimsoll_planner.registry import registered

BACKENDS: Mapping[Backend, LaunchBackend] = {
    one.name: one
    for one in registered(__name__, __path__, "BACKEND")
    if isinstance(one, LaunchBackend)
}
"""Back ends that this release launches with, by name."""


def backend_for(spec: TrainingPlanSpec | None) -> LaunchBackend:
    """Back end of a plan; that of Jobs for a spec without one of this release."""
    wanted = Backend.JOB if spec is None else spec.launch.backend
    return BACKENDS.get(wanted, BACKENDS[Backend.JOB])
