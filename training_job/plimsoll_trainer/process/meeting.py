"""Meeting of the ranks of a job, which wait for the last one.

In: the options of a rank. Out: the store that the process group is made from. Called by
`run`. Pods of a worker group start when there is room for each, minutes apart on a full
cluster; a process group gives the last one a minute. So all are waited for here, and
whoever is asked to leave meanwhile does so at once: nothing was done yet.
"""

from __future__ import annotations

import os
import socket
import time
from datetime import timedelta
from typing import Any

import torch.distributed as untyped_dist

from plimsoll_trainer.errors import LostRankError
from plimsoll_trainer.process.admission import Place
from plimsoll_trainer.process.options import Options
from plimsoll_trainer.process.stopping import StopSignal

dist: Any = untyped_dist
TRY_S, PAUSE_S = 2.0, 0.2
"""For one try to reach rank 0, and between two."""
CONNECT_S = 30.0
"""For a store that listens to answer: no signal is heard meanwhile."""
OWN_HOST = "localhost"
HERE = "plimsoll/here"
"""Counts the ranks that have come."""


def meeting_place(place: Place, options: Options, stop: StopSignal) -> Any:
    """Store of all ranks once they have come, or `stop` is set.

    None stands for the address in torchrun's environment.

    Raises:
        LostRankError: some did not come in time.
    """
    if options.store_file is not None:
        return dist.FileStore(str(options.store_file), place.num_ranks)
    if options.meet_at is not None:
        return met(options.meet_at, place, options, stop)
    alone = "RANK" not in os.environ
    return dist.HashStore() if alone else None


def met(
    meet_at: tuple[str, int], place: Place, options: Options, stop: StopSignal
) -> Any:
    """A store at the address of rank 0, once all ranks have reached it.

    Raises:
        LostRankError: some did not come in time.
    """
    until_s = time.monotonic() + options.meet_timeout_s
    store: Any = None
    num_here = 0
    while num_here < place.num_ranks and not stop.is_set:
        if time.monotonic() > until_s:
            found = f"{num_here} of {place.num_ranks} ranks" if store else "no rank 0"
            where = f"{meet_at[0]}:{meet_at[1]}"
            limit = f"{options.meet_timeout_s:g} s"
            raise LostRankError(f"{found} came to {where} within {limit}")
        is_new = store is None
        store = store or reached(meet_at, place)
        num_here = counted(store, int(is_new)) if store else 0
        if num_here < place.num_ranks:
            time.sleep(PAUSE_S)
    if store:
        store.set_timeout(timedelta(seconds=options.timeout_s))
    return store


def counted(store: Any, num_new: int) -> int:
    """Number of ranks that have come so far, those that come now included.

    Raises:
        LostRankError: rank 0 is there no more.
    """
    try:
        return int(store.add(HERE, num_new))
    except dist.DistError:
        raise LostRankError("rank 0 left before all ranks had come") from None


def reached(meet_at: tuple[str, int], place: Place) -> Any:
    """Store of rank 0, None where that does not answer yet.

    If there is no store, torch prints a page of C++ at each try: a plain
    connection is tried first. Rank 0 reaches its own without the name of its pod,
    which a busy cluster may know only a minute after the pod has started.
    """
    host, port = meet_at if place.rank else (OWN_HOST, meet_at[1])
    try:
        if place.rank:
            socket.create_connection((host, port), TRY_S).close()
    except OSError:  # nobody listens, or the name of its pod is not known yet
        return None
    return dist.TCPStore(
        host,
        port,
        place.num_ranks,
        is_master=place.rank == 0,
        timeout=timedelta(seconds=CONNECT_S),
        wait_for_workers=False,
    )
