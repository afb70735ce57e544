"""Which database system a place means.

In: the path of a file, or the address of a server. Out: a `DatabaseSystem`. Called by
`database`. Either driver is imported only if its place is named, because PostgreSQL's
is not installed everywhere.
"""

from __future__ import annotations

from pathlib import Path

from plimsoll_operator.errors import StorePathError
from plimsoll_operator.store.system import DatabaseSystem

SCHEMES = ("postgresql", "postgres")


def system_at(place: Path | str) -> DatabaseSystem:
    """Database system of a file, or `postgresql://user:password@host:port/database`.

    Raises:
        StorePathError: an address that is none, or of another database system.
    """
    scheme, is_address, _ = str(place).partition("://")
    if isinstance(place, Path) or not is_address:
        from plimsoll_operator.store.sqlite import SqliteFile  # noqa: PLC0415

        return SqliteFile(Path(place))
    if scheme not in SCHEMES:
        raise StorePathError(
            f"a store on {scheme!r}: got the address of another database system; name "
            "a file, or postgresql://user:password@host:port/database"
        )
    from plimsoll_operator.store.postgresql import server_at  # noqa: PLC0415

    return server_at(str(place))
