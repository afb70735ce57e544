"""The one error that the lab raises.

Raised everywhere below tests/lab; caught by __main__ (exit status 69), by the keeper
(sent on to whoever started the lab) and by the fixtures (the test is skipped).
"""

from __future__ import annotations


class LabError(Exception):
    """One line for a person: what is wrong, with which values, and what to do next."""
