"""Whether this is a run of CI, where everything must be there and nothing may stay."""

from __future__ import annotations

import os

IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}
