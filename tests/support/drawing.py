"""How random instances are drawn: a plugin of pytest, for every suite.

A test that takes longer than usual on a busy machine has no fault, so there is no
deadline; what fails is printed so that it can be drawn again.
"""

from __future__ import annotations

import hypothesis

hypothesis.settings.register_profile("plimsoll", deadline=None, print_blob=True)
hypothesis.settings.load_profile("plimsoll")
