"""How random instances are drawn, and how many: a plugin of pytest, for every suite.

A test that takes longer than usual on a busy machine has no fault, so there is no
deadline; what fails is printed so that it can be drawn again. `PLIMSOLL_DRAWS` says how
hard tests search, by the name of a profile.
"""

from __future__ import annotations

import math
import os

import hypothesis

PROFILES = {"quick": 0.25, "ci": 1.0, "nightly": 20.0}
"""How many times the usual number of instances each profile draws."""
CHOSEN = os.environ.get("PLIMSOLL_DRAWS", "ci")


def draws(usual: int) -> int:
    """Instances that a test draws under the chosen profile."""
    return math.ceil(usual * PROFILES[CHOSEN])


hypothesis.settings.register_profile(
    CHOSEN, deadline=None, print_blob=True, max_examples=draws(100)
)
hypothesis.settings.load_profile(CHOSEN)
