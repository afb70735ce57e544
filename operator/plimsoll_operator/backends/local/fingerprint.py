"""What the code of a workload is now, for profiles that were made some time ago.

In: a plan. Out: the fingerprint of its entry point, computed by the trainer in a
process of its own, which does not load torch (0.2 s). Called where a plan is observed.
"""

from __future__ import annotations

import asyncio
import json
import sys

from plimsoll_operator.backends.commands import TRAINER
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.model_profile import Fingerprint


async def fingerprint_now(plan: StoredPlan) -> Fingerprint | None:
    """Return what would be profiled now; None where that cannot be told."""
    workload = plan.spec.workload
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", f"{TRAINER}.user_code.fingerprint"),
            *(workload.entrypoint, workload.args),
            cwd=plan.folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return None  # its folder is gone
    told, _ = await process.communicate()
    if process.returncode:
        return None
    try:
        return Fingerprint.from_json(json.loads(told), "fingerprint")
    except (ValueError, InvalidInputError):
        return None
