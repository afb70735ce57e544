"""What a gzip holds, within a bound."""

from __future__ import annotations

import gzip

import pytest

from plimsoll_operator.objects.bounded import inflated
from plimsoll_planner.errors import UnreadableError


def test_what_is_at_hand_is_inflated_within_a_bound() -> None:
    """As the plan in a ConfigMap is."""
    assert inflated(gzip.compress(b"plan"), 4) == b"plan"
    for sent, limit in ((gzip.compress(b"plan"), 3), (b"plan", 4), (b"", 4)):
        with pytest.raises(UnreadableError, match="gzip"):
            inflated(sent, limit)
