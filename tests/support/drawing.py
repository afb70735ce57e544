"""How random instances are drawn, and how many: a plugin of pytest, for every suite.

A test that takes longer than usual on a busy machine has no fault, so there is no
deadline; what fails is printed so that it can be drawn again. `PLIMSOLL_DRAWS` says how
hard tests search, by the name of a profile, and a test that draws more gets more time.
"""

from __future__ import annotations

import math
import os

import hypothesis
import pytest

from tools.ci import IN_CI

PROFILES = {"quick": 0.25, "ci": 0.5, "nightly": 20.0}
"""How many times the usual number of instances each profile draws."""
CHOSEN = os.environ.get("PLIMSOLL_DRAWS") or "ci"


def draws(usual: int) -> int:
    """Instances that a test draws under the chosen profile."""
    return math.ceil(usual * PROFILES[CHOSEN])


def pytest_configure() -> None:
    """Load the chosen profile.

    In CI the same instances are drawn each time, as in hypothesis' own profile for it:
    what fails then is the change's fault. At night, which is to find new ones, they are
    others each time, in CI too.

    Raises:
        UsageError: there is no such profile.
    """
    if CHOSEN not in PROFILES:
        raise pytest.UsageError(
            f"PLIMSOLL_DRAWS={CHOSEN!r}: choose one of {', '.join(PROFILES)}, or "
            "unset it"
        )
    hypothesis.settings.register_profile(
        CHOSEN,
        deadline=None,
        print_blob=True,
        max_examples=draws(100),
        derandomize=IN_CI and CHOSEN != "nightly",
    )
    hypothesis.settings.load_profile(CHOSEN)


@pytest.hookimpl(trylast=True)  # hypothesis marks the tests that draw
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Give each test that draws more than usual as many times its usual limit."""
    if PROFILES[CHOSEN] <= 1:
        return
    for item in items:
        if item.get_closest_marker("hypothesis"):
            limit = item.get_closest_marker("timeout")
            usual_s = float(limit.args[0] if limit else config.getini("timeout"))
            longer = pytest.mark.timeout(usual_s * PROFILES[CHOSEN])
            item.add_marker(longer, append=False)
