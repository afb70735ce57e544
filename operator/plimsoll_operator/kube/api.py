"""The one module that talks to the API server: a few verbs on objects as plain JSON.

In: a kind, names, objects. Out: objects, or an error that says whether to try again.
Called by observers, back ends, ingest and the Lease. Requests are those of the official
dynamic client: TLS, proxies and who we are. Its models and its discovery are not used,
because what passes through here is written by others and may have fields that no model
knows, and all kinds are known (docs/decisions/0021). A token that has expired is looked
up again, once for each request.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import quote

import aiohttp
from kubernetes.aio import client as untyped_client
from kubernetes.aio import config as untyped_config
from kubernetes.aio import dynamic as untyped_dynamic
from kubernetes.aio.dynamic import exceptions as untyped_exceptions

from plimsoll_operator.errors import (
    ApiConflictError,
    ApiDeniedError,
    ApiDownError,
    ApiRefusedError,
    ClusterError,
)
from plimsoll_operator.kube.login import TOKEN, log_in
from plimsoll_operator.names import GROUP, PLURAL, VERSION
from plimsoll_planner.errors import one_line

client: Any = untyped_client
config: Any = untyped_config
dynamic: Any = untyped_dynamic
failures: Any = untyped_exceptions
Object = dict[str, Any]
"""As the API server reads and writes it."""
TIMEOUT_S: Final = 20.0
"""Of a request: longer than a slow API server takes. A Lease has limits of its own."""
METADATA_ONLY: Final = (
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)
MERGE: Final = "application/merge-patch+json"
PAGE: Final = 500
"""Objects of a list that are asked for at a time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """A kind of object, and where the API server has it."""

    path: str
    """Of its group and version."""
    plural: str
    is_namespaced: bool = True
    is_optional: bool = False
    """Its definition may be absent; then there are no objects of it."""

    @property
    def group(self) -> str:
        """Group of its API, which is not the core's."""
        return self.path.split("/")[1]

    @property
    def version(self) -> str:
        """Version of its API."""
        return self.path.rpartition("/")[2]


PLANS = Kind(path=f"apis/{GROUP}/{VERSION}", plural=PLURAL)
JOBS = Kind(path="apis/batch/v1", plural="jobs")
PODS = Kind(path="api/v1", plural="pods")
SERVICES = Kind(path="api/v1", plural="services")
CONFIG_MAPS = Kind(path="api/v1", plural="configmaps")
CLAIMS = Kind(path="api/v1", plural="persistentvolumeclaims")
NODES = Kind(path="api/v1", plural="nodes", is_namespaced=False)
LEASES = Kind(path="apis/coordination.k8s.io/v1", plural="leases")
EVENTS = Kind(path="apis/events.k8s.io/v1", plural="events")
TOKEN_REVIEWS = Kind(
    path="apis/authentication.k8s.io/v1", plural="tokenreviews", is_namespaced=False
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """An object as the API server made it."""

    object: Object
    warnings: tuple[str, ...] = ()


class Api:
    """Requests to one API server."""

    def __init__(
        self, made: Any, log_in_again: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Requests through a `DynamicClient`, whose login can be renewed."""
        self._client = made
        self._log_in_again = log_in_again

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """An object, None where there is none.

        Raises:
            ClusterError: it cannot be read.
        """
        try:
            return (await self._ask("GET", path_of(kind, namespace, name))).object
        except ApiRefusedError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    async def list(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        labels: str = "",
        metadata_only: bool = False,
    ) -> list[Object]:
        """All objects; see `pages`."""
        pages = self.pages(kind, namespace, labels=labels, metadata_only=metadata_only)
        return [one async for page in pages for one in page]

    async def pages(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        labels: str = "",
        metadata_only: bool = False,
    ) -> AsyncGenerator[Sequence[Object]]:
        """Yield the objects that a label selector admits, a page at a time.

        Without a namespace those of all; of `metadata_only` nothing that they hold.

        Raises:
            ClusterError: they cannot be read.
        """
        accept = {"Accept": METADATA_ONLY} if metadata_only else {}
        path, token = path_of(kind, namespace), ""
        while True:
            try:
                reply = await self._ask(
                    *("GET", path),
                    label_selector=labels or None,
                    limit=PAGE,
                    _continue=token or None,
                    header_params=dict(accept),
                )
            except ApiRefusedError as error:
                if kind.is_optional and error.status == HTTPStatus.NOT_FOUND:
                    return
                raise
            yield reply.object["items"] or []  # null where there are none
            token = reply.object["metadata"].get("continue", "")
            if not token:
                return

    async def create(
        self, kind: Kind, namespace: str, made: Object, *, dry_run: bool = False
    ) -> Written:
        """Make an object; unknown and duplicate fields are refused.

        Raises:
            ApiConflictError: there is one of its name.
            ClusterError: it was not made.
        """
        return await self._ask(
            *("POST", path_of(kind, namespace)),
            body=made,
            dry_run="All" if dry_run else None,
            query_params=[("fieldValidation", "Strict")],
        )

    async def replace(
        self, kind: Kind, namespace: str, made: Object, *, part: str = ""
    ) -> Object:
        """Write an object, or a part such as its status, over the version it has.

        Raises:
            ApiConflictError: somebody has changed it since.
            ClusterError: it was not written.
        """
        name = made["metadata"]["name"]
        path = path_of(kind, namespace, name, part)
        return (await self._ask("PUT", path, body=made)).object

    async def patch(
        self, kind: Kind, namespace: str, name: str, change: Object, *, part: str = ""
    ) -> Object:
        """Merge a change into an object; into one version of it, if that is named.

        Raises:
            ApiConflictError: somebody has changed it since.
            ClusterError: it was not changed.
        """
        path = path_of(kind, namespace, name, part)
        return (await self._ask("PATCH", path, body=change, content_type=MERGE)).object

    async def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        uid: str,
        foreground: bool = False,
    ) -> None:
        """Remove the object that has this uid, if it is still there.

        In the foreground it stays until all that belongs to it is gone.

        Raises:
            ClusterError: it was not removed.
        """
        how = {
            "preconditions": {"uid": uid},
            "propagationPolicy": "Foreground" if foreground else "Background",
        }
        try:
            await self._ask("DELETE", path_of(kind, namespace, name), body=how)
        except ApiConflictError:
            return  # it is another one by now
        except ApiRefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    async def _ask(self, verb: str, path: str, **what: Any) -> Written:
        """Make one `DynamicClient.request`, and once more if it needs another login.

        Raises:
            ClusterError: it was not answered, or not done.
        """
        who = await self._who()
        try:
            try:
                reply = await self._send(verb, path, **what)
            except failures.UnauthorizedError:
                if not await self._is_renewed(who):
                    raise
                reply = await self._send(verb, path, **what)
            found = parsed(await reply.read())
        except failures.DynamicApiError as error:
            answer = parsed((error.body or "").encode())
            raise refusal(error.status, answer, f"{verb} {path}") from None
        except (aiohttp.ClientError, config.ConfigException, OSError) as error:
            why = str(error) or type(error).__name__
            raise ApiDownError(f"the API server does not answer: {why}") from None
        return Written(
            object=found, warnings=warnings_in(reply.headers.getall("Warning", ()))
        )

    async def _send(self, verb: str, path: str, **what: Any) -> Any:
        """The reply to one request, whose body nobody has read."""
        limits = {"serialize": False, "_request_timeout": TIMEOUT_S}
        return await self._client.request(verb, path, **what, **limits)

    async def _who(self) -> str:
        """Our login in the header of a request.

        Raises:
            ApiDownError: it cannot be read now.
        """
        try:
            configuration = self._client.configuration
            return await configuration.get_api_key_with_prefix(TOKEN) or ""
        except (config.ConfigException, OSError) as error:
            raise ApiDownError(f"our login cannot be read: {error}") from None

    async def _is_renewed(self, who: str) -> bool:
        """Whether another login, which is made here, shows something else.

        Raises:
            ApiDownError: our login cannot be read.
        """
        if self._log_in_again is None:
            return False
        try:
            await self._log_in_again()
        except ClusterError as error:
            raise ApiDownError(str(error)) from None
        return await self._who() != who


def path_of(kind: Kind, namespace: str = "", name: str = "", part: str = "") -> str:
    """Path of an object or a list; names are quoted."""
    within = ("namespaces", namespace) if kind.is_namespaced and namespace else ()
    words = (*within, kind.plural, name, part)
    return "/".join(
        [f"/{kind.path}", *(quote(word, safe="") for word in words if word)]
    )


def parsed(text: bytes) -> Object:
    """The object in a reply; proxies answer in HTML."""
    try:
        found: object = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return cast("Object", found)
    return {"message": one_line(text[:200].decode(errors="replace"))}


def refusal(status: int, found: Mapping[str, Any], what: str) -> ClusterError:
    """The error that a reply stands for, by its status."""
    text = f"{what}: {found.get('message') or status}"
    if status == HTTPStatus.UNAUTHORIZED:  # no matter of rights: a token comes in time
        return ApiDownError(f"{text}: our token is not taken")
    if status == HTTPStatus.FORBIDDEN:
        return ApiDeniedError(text)
    if status == HTTPStatus.CONFLICT:
        return ApiConflictError(text)
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= 500:  # noqa: PLR2004
        return ApiDownError(text)
    return ApiRefusedError(text, status)


def warnings_in(headers: Sequence[str]) -> tuple[str, ...]:
    """The texts of warnings: `299 - "unknown field .."`."""
    texts = (header.partition('"')[2].rpartition('"')[0] for header in headers)
    return tuple(text.replace('\\"', '"') for text in texts if text)


@asynccontextmanager
async def open_api(kubeconfig: str = "", context: str = "") -> AsyncGenerator[Api]:
    """Open the API server: that of a file, or the one whose pod we are.

    `context` is one of the file's; empty: its current one.

    Raises:
        ClusterError: there is neither.
    """
    configuration = client.Configuration()
    again = partial(log_in, configuration, kubeconfig, context)
    await again()
    async with client.ApiClient(configuration) as made:
        yield Api(dynamic.DynamicClient(made), again)
