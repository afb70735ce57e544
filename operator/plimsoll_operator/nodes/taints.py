"""Which taints keep a plan's pods off a node.

In: a node, and tolerations as a pod template has them. Out: the first taint that
bars the pods. Called by the inventory. The rules are those of the scheduler, but for
one: who tolerates being evicted after some seconds does not tolerate the taint, for
training takes longer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from plimsoll_operator.kube.api import Object
from plimsoll_operator.nodes.labels import GPU

GPU_TOLERATION: Final[Object] = {"key": GPU, "operator": "Exists"}
"""Of the taint that keeps pods without GPUs off the nodes with some. All pods of ours
that ask for GPUs have it."""
BARRING: Final = ("NoSchedule", "NoExecute")


def barring_taint(node: Object, tolerations: Iterable[Object]) -> Object | None:
    """The first taint of a node that pods do not tolerate."""
    given = (GPU_TOLERATION, *tolerations)
    for taint in node.get("spec", {}).get("taints") or ():
        is_open = taint.get("effect") not in BARRING
        if not is_open and not any(tolerates(one, taint) for one in given):
            return dict(taint)
    return None


def tolerates(toleration: Object, taint: Object) -> bool:
    """Whether one toleration lifts one taint."""
    effect = taint.get("effect")
    if toleration.get("effect") not in (None, "", effect):
        return False
    if effect == "NoExecute" and toleration.get("tolerationSeconds") is not None:
        return False
    key, operator = toleration.get("key"), toleration.get("operator") or "Equal"
    if operator == "Exists":
        return key in (None, "", taint.get("key"))
    is_same = (toleration.get("value") or "") == (taint.get("value") or "")
    return operator == "Equal" and bool(key) and key == taint.get("key") and is_same
