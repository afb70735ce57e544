"""Models of `transformers` without code of one's own: configurations, entry points.

configurations    of a folder, a bundled name or the hub
workloads         the entry points
"""

from plimsoll_trainer.huggingface.workloads import pretrain

__all__ = ["pretrain"]
