"""What can go wrong around the cluster or the local machine, as a tree.

    PlimsollError               (plimsoll_planner.errors)
    └── OperatorError           an effect failed
        └── InventoryError      the devices of a machine cannot be listed

The caller of an effect decides whether to try again; the CLI prints the text.
"""

from __future__ import annotations

from plimsoll_planner.errors import PlimsollError


class OperatorError(PlimsollError):
    """An effect on the cluster or the local machine failed."""


class InventoryError(OperatorError):
    """The devices of a machine cannot be listed."""
