"""A back end that is added: nothing but its file knows of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from plimsoll_operator.api.spec import Backend
from plimsoll_operator.backends.admission import check_backend
from plimsoll_operator.backends.pods import BACKENDS, backend_for
from plimsoll_operator.backends.pods.job import JobBackend
from plimsoll_operator.control.watching import Logins, registry_for
from plimsoll_operator.kube.api import Kind
from plimsoll_planner.errors import InvalidFieldError
from tests.support.cluster_objects import a_plan_object


class JobSetBackend(JobBackend):
    """Another kind of object, read as a Job is."""

    name = Backend.JOB_SET
    launches = "JobSets"
    makes = Kind(path="apis/jobset.x-k8s.io/v1alpha2", plural="jobsets")


def watched() -> set[str]:
    """Plurals of what is watched."""
    registry: Any = registry_for(lambda *_: None, lambda *_: None, Logins(""))
    handlers = registry._watching.get_all_handlers()
    return {one.selector.any_name or one.selector.plural for one in handlers}


def test_an_added_back_end_launches_and_is_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until then its name is refused, with those that there are."""
    spec = a_plan_object(launch={"backend": "JobSet"}).spec
    assert spec is not None
    with pytest.raises(InvalidFieldError, match="Job: this release launches Indexed"):
        check_backend(spec)
    assert (backend_for(spec).name, watched()) == (
        Backend.JOB,
        {"trainingplans", "jobs"},
    )
    added = JobSetBackend()
    monkeypatch.setitem(cast("dict[Backend, Any]", BACKENDS), Backend.JOB_SET, added)
    check_backend(spec)
    assert backend_for(spec) is added
    assert watched() == {"trainingplans", "jobs", "jobsets"}
    other = replace(spec, launch=replace(spec.launch, backend=Backend.TRAIN_JOB))
    with pytest.raises(InvalidFieldError, match="launches Indexed Jobs and JobSets"):
        check_backend(other)
