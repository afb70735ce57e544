"""The API group and the labels: names that users write down and that must not change.

The group stands here only (docs/decisions/0003).
"""

from __future__ import annotations

from typing import Final

GROUP: Final = "plimsoll.dev"
VERSION: Final = "v1alpha1"
KIND: Final = "TrainingPlan"
PLURAL: Final = "trainingplans"
SHORT_NAME: Final = "tplan"

EMULATED_DEVICE_LABEL: Final = f"{GROUP}/emulated-device"
"""On a node: its devices are emulated; no CUDA job is ever placed there."""
PLAN_LABEL: Final = f"{GROUP}/plan"
"""On a child: the name of its TrainingPlan. For selecting, never for owning."""
