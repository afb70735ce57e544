"""Errors around the cluster or the local machine, as a tree.

    PlimsollError               (plimsoll_planner.errors)
    └── OperatorError           an effect failed
        ├── InventoryError      the devices of a machine cannot be listed
        ├── ClusterError        the API server did not do what was asked
        │   ├── ApiDownError        it is busy or away: try again
        │   ├── ApiConflictError    somebody was quicker: look again
        │   ├── ApiDeniedError      we may not: a person grants it
        │   ├── NameConflictError   one of its name is there, and is not found as ours
        │   └── ApiRefusedError     what was asked is wrong; `status` says how
        ├── TooLargeError       a document is too large for where it has to go
        ├── RefusedReportError  the report of a pod is refused; `status` says how
        ├── LocalBackendError   processes or folders of one machine cannot be used
        │   ├── AlreadyRunningError     somebody else runs this plan
        │   ├── DiskFullError       there is no room to save in
        │   └── SlowStartError          a process was started and has not begun
        └── StoreError          the store did not do what was asked, and nothing of it
            ├── StorePathError      no store can be there, or we may not use it
            ├── StoreVersionError   another version of Plimsoll wrote it
            ├── StoreFullError      the disk is full
            ├── StoreBusyError      another process writes for too long
            ├── StoreDownError      its server is away: try again
            ├── StoreLostError      deleted or replaced while it was open
            └── StoreDamagedError   no store, or one that cannot be read

The caller of an effect decides whether to try again; the CLI prints the text.
"""

from __future__ import annotations

from typing import Any

from plimsoll_planner.errors import PlimsollError


class OperatorError(PlimsollError):
    """An effect on the cluster or the local machine failed."""


class InventoryError(OperatorError):
    """The devices of a machine cannot be listed."""


class ClusterError(OperatorError):
    """The API server did not do what was asked."""


class ApiDownError(ClusterError):
    """The API server is busy or away, or our token has expired; asked again, it may."""


class ApiConflictError(ClusterError):
    """An object has changed or exists already; whoever asked looks again."""


class ApiDeniedError(ClusterError):
    """We may not do this; a person grants it."""


class ApiRefusedError(ClusterError):
    """A request that is wrong. `status` is that of HTTP."""

    def __init__(self, text: str, status: int) -> None:
        """Keep the status beside the text."""
        super().__init__(text)
        self.status = status


class NameConflictError(ClusterError):
    """One of its name is there, and no look finds it ours; it is waited for.

    `kind` (a `kube.api.Kind`) and `name` are those of the object.
    """

    def __init__(self, text: str, kind: Any, name: str) -> None:
        """Keep what is there beside the text."""
        super().__init__(text)
        self.kind = kind
        self.name = name


class TooLargeError(OperatorError):
    """A document does not go where it has to; the text says what to change."""


class RefusedReportError(OperatorError):
    """The report of a pod is refused, and nothing of it is stored; ingest answers so.

    `status` is that of HTTP; `retry_after_s` says when it may be sent again, and 0
    that this changes nothing.
    """

    def __init__(self, status: int, text: str, *, retry_after_s: int = 0) -> None:
        """Keep what the answer needs beside the text."""
        super().__init__(text)
        self.status = status
        self.retry_after_s = retry_after_s


class LocalBackendError(OperatorError):
    """Processes or folders of this machine do not do what they should."""


class AlreadyRunningError(LocalBackendError):
    """Another process runs the plan."""


class DiskFullError(LocalBackendError):
    """A job cannot save; asked again when there is room, it does."""


class SlowStartError(LocalBackendError):
    """A process was started and has not begun; asked again, it is found or started."""


class StoreError(OperatorError):
    """The store did not do what was asked; running jobs go on, new plans wait."""


class StorePathError(StoreError):
    """No store can be at this path or address, or we may not use it."""


class StoreVersionError(StoreError):
    """A newer version of Plimsoll wrote the store, or one that was never released."""


class StoreFullError(StoreError):
    """The store cannot grow; asked again when there is room, it goes on."""


class StoreBusyError(StoreError):
    """Another process writes for too long; asked again, it may go on."""


class StoreDownError(StoreError):
    """The server does not answer; asked again, it may. One machine has none.

    Where it went away at the very end of a transaction, that may have been done: all
    that repositories write may be written twice.
    """


class StoreLostError(StoreError):
    """The file was deleted or replaced while the store was open."""


class StoreDamagedError(StoreError):
    """The file is no store, or one that cannot be read."""
