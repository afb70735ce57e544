"""The API group, labels and annotations: names that must not change once in use.

The group stands here only (docs/decisions/0003).
"""

from __future__ import annotations

from typing import Final

PlanKey = tuple[str, str]
"""Namespace and name of a TrainingPlan."""
GROUP: Final = "plimsoll.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "TrainingPlan"
PLURAL: Final = "trainingplans"
SINGULAR: Final = "trainingplan"
SHORT_NAME: Final = "tplan"
CATEGORY: Final = "training"

EMULATED_DEVICE_LABEL: Final = f"{GROUP}/emulated-device"
"""On a node: its devices are emulated; no CUDA job is ever placed there."""
PLAN_LABEL: Final = f"{GROUP}/plan"
"""On an object of a plan: the plan's name. For selecting, never for owning."""
TASK_LABEL: Final = f"{GROUP}/child"
"""On an object of a plan: what it is for, a `TaskKind`, or `plan` and `result`."""
ATTEMPT_LABEL: Final = f"{GROUP}/attempt"
"""On what belongs to an attempt: its number."""
SUBJECT_ANNOTATION: Final = f"{GROUP}/subject"
"""On a Job: what it works on, too long for a label."""
AFTER_ANNOTATION: Final = f"{GROUP}/after"
"""On a Job: what it makes is later than this; seconds since 1970."""
NOTE_ANNOTATION: Final = f"{GROUP}/note"
"""On a Job: a note for people about its pods."""
TOKEN_AUDIENCE: Final = GROUP
"""Of the tokens by which pods report."""
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""On a pod of an Indexed Job: which of them it is; an annotation of Kubernetes."""
GPU_RESOURCE: Final = "nvidia.com/gpu"
"""What pods ask nodes for; nodes with emulated devices announce the same."""
