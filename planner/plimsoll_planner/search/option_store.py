"""Options of runs of layers, which are large, for as long as there is room.

In: a key, and how its options are built. Out: the options. Called by `variant_tables`;
all variants share the room.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

from plimsoll_planner.memory.option_arrays import OptionArrays

MOST_OPTION_BYTES = 3 * 2**28
"""Options that are kept; older ones are built again when they are asked for."""


class OptionStore:
    """Options by their key, and how many were pruned."""

    def __init__(self) -> None:
        """Begin with none."""
        self.num_pruned = 0
        """Runs of layers of which options were pruned, in the options with the most."""
        self._kept: OrderedDict[Hashable, OptionArrays] = OrderedDict()

    def once(self, key: Hashable, make: Callable[[], OptionArrays]) -> OptionArrays:
        """Options of a key, made unless they are kept."""
        if key not in self._kept:
            self._kept[key] = self.counted(make())
            self._forget()
        self._kept.move_to_end(key)
        return self._kept[key]

    def counted(self, options: OptionArrays) -> OptionArrays:
        """The same; the runs of which options were pruned are counted."""
        self.num_pruned = max(self.num_pruned, int(options.pruned.sum()))
        return options

    def _forget(self) -> None:
        """Forget what was asked for longest ago, above a limit of memory."""
        total = sum(each.num_bytes for each in self._kept.values())
        while len(self._kept) > 1 and total > MOST_OPTION_BYTES:
            _, forgotten = self._kept.popitem(last=False)
            total -= forgotten.num_bytes
