"""The one module that talks to the API server: a few verbs on objects as plain JSON.

In: a kind, names, objects. Out: objects, or an error that says whether to try again.
Called by eyes, back ends, ingest and the Lease. Who we are, TLS and proxies are the
business of the official client; its models are not used, for what passes through here
is written by others, and may have fields that no model knows. A token that has expired
is looked up again, once for each request.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final, NoReturn, cast
from urllib.parse import quote, urlencode

import aiohttp
from kubernetes.aio import client as untyped_client
from kubernetes.aio import config as untyped_config

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
Object = dict[str, Any]
"""As the API server reads and writes it."""
TIMEOUT_S: Final = 20.0
"""Of a request: longer than a slow API server takes. A Lease has limits of its own."""
METADATA_ONLY: Final = (
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)
PAGE: Final = 500
"""Objects of a list that are asked for at a time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """A kind of object, and where the API server has it."""

    path: str
    """Of its group and version."""
    plural: str
    is_namespaced: bool = True


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
    """What the API server made of an object."""

    object: Object
    warnings: tuple[str, ...] = ()


class Api:
    """Requests to one API server."""

    def __init__(
        self, made: Any, log_in_again: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Use an `ApiClient` that knows the server and who we are.

        Args:
            made: the client.
            log_in_again: looks up again who we are, for the same client.
        """
        self._client = made
        self._log_in_again = log_in_again

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return an object, None where there is none.

        Raises:
            ClusterError: it cannot be told.
        """
        try:
            return (await self._ask("GET", url_of(kind, namespace, name))).object
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
        """Return all objects; see `pages`."""
        found: list[Object] = []
        pages = self.pages(kind, namespace, labels=labels, metadata_only=metadata_only)
        async for page in pages:
            found += page
        return found

    async def pages(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        labels: str = "",
        metadata_only: bool = False,
    ) -> AsyncGenerator[Sequence[Object]]:
        """Yield all objects, a page at a time.

        Args:
            kind: of the objects.
            namespace: empty: all of them.
            labels: a selector, applied by the server.
            metadata_only: leave out what the objects hold.

        Raises:
            ClusterError: they cannot be told.
        """
        query = {"labelSelector": labels, "limit": str(PAGE), "continue": ""}
        while True:
            url = url_of(kind, namespace, **query)
            accept = METADATA_ONLY if metadata_only else "application/json"
            page = (await self._ask("GET", url, accept=accept)).object
            yield page["items"] or []  # null where there are none
            query["continue"] = page["metadata"].get("continue", "")
            if not query["continue"]:
                return

    async def create(
        self, kind: Kind, namespace: str, made: Object, *, dry_run: bool = False
    ) -> Written:
        """Make an object; unknown and duplicate fields are refused.

        Raises:
            ApiConflictError: there is one of its name.
            ClusterError: it was not made.
        """
        query = {"fieldValidation": "Strict", "dryRun": "All" if dry_run else ""}
        return await self._ask("POST", url_of(kind, namespace, **query), body=made)

    async def replace(
        self, kind: Kind, namespace: str, made: Object, *, part: str = ""
    ) -> Object:
        """Write an object, or a part such as its status, over the version it has.

        Raises:
            ApiConflictError: somebody has changed it since.
            ClusterError: it was not written.
        """
        name = made["metadata"]["name"]
        return (
            await self._ask("PUT", url_of(kind, namespace, name, part), body=made)
        ).object

    async def patch(
        self, kind: Kind, namespace: str, name: str, change: Object, *, part: str = ""
    ) -> Object:
        """Merge a change into an object; into one version of it, if that is named.

        Raises:
            ApiConflictError: somebody has changed it since.
            ClusterError: it was not changed.
        """
        url = url_of(kind, namespace, name, part)
        merge = "application/merge-patch+json"
        return (await self._ask("PATCH", url, body=change, content_type=merge)).object

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

        Args:
            kind: of the object.
            namespace: of the object.
            name: of the object.
            uid: of the object; another one of its name is left alone.
            foreground: it stays until all that belongs to it is gone.

        Raises:
            ClusterError: it was not removed.
        """
        how = {
            "preconditions": {"uid": uid},
            "propagationPolicy": "Foreground" if foreground else "Background",
        }
        try:
            await self._ask("DELETE", url_of(kind, namespace, name), body=how)
        except ApiConflictError:
            return  # it is another one by now
        except ApiRefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    async def _ask(
        self,
        verb: str,
        url: str,
        *,
        body: Object | None = None,
        accept: str = "application/json",
        content_type: str = "application/json",
    ) -> Written:
        """Make one request.

        Raises:
            ClusterError: it was not answered, or not done.
        """
        headers = {"Accept": accept, "Content-Type": content_type}
        who = await self._who()
        reply, text = await self._send(verb, url, headers | who, body)
        if reply.status == HTTPStatus.UNAUTHORIZED and await self._is_renewed(who):
            who = await self._who()
            reply, text = await self._send(verb, url, headers | who, body)
        found = parsed(text)
        if reply.status >= HTTPStatus.BAD_REQUEST:
            refuse(reply.status, found, f"{verb} {url.partition('?')[0]}")
        return Written(
            object=found, warnings=warnings_in(reply.headers.getall("Warning", ()))
        )

    async def _who(self) -> dict[str, str]:
        """Return the headers that say who we are.

        Raises:
            ApiDownError: it cannot be told now.
        """
        headers: dict[str, str] = {}
        try:
            told = self._client.update_params_for_auth
            await told(headers, [], [TOKEN], "", "", None)
        except (config.ConfigException, OSError) as error:
            raise ApiDownError(f"who we are cannot be told: {error}") from None
        return headers

    async def _is_renewed(self, who: Mapping[str, str]) -> bool:
        """Log in again; tell whether that makes other headers than those refused.

        Raises:
            ApiDownError: it cannot be told who we are.
        """
        if self._log_in_again is None:
            return False
        try:
            await self._log_in_again()
        except ClusterError as error:
            raise ApiDownError(str(error)) from None
        return await self._who() != who

    async def _send(
        self, verb: str, url: str, headers: Mapping[str, str], body: Object | None
    ) -> tuple[Any, bytes]:
        """Send one request; return the reply, and what it says.

        Raises:
            ApiDownError: it was not answered.
        """
        try:
            reply = await self._client.call_api(
                verb,
                self._client.configuration.host + url,
                dict(headers),
                body,
                _request_timeout=TIMEOUT_S,
            )
            return reply, await reply.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = str(error) or type(error).__name__
            raise ApiDownError(f"the API server does not answer: {why}") from None


def url_of(
    kind: Kind, namespace: str = "", name: str = "", part: str = "", **query: str
) -> str:
    """Return the path of an object or a list, with what is asked of it."""
    within = ("namespaces", namespace) if kind.is_namespaced and namespace else ()
    words = (*within, kind.plural, name, part)
    path = "/".join(quote(word, safe="") for word in words if word)
    given = urlencode({key: value for key, value in query.items() if value})
    return f"/{kind.path}/{path}" + (f"?{given}" if given else "")


def parsed(text: bytes) -> Object:
    """Return the object in a reply; proxies answer in HTML."""
    try:
        found: object = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return cast("Object", found)
    return {"message": one_line(text[:200].decode(errors="replace"))}


def refuse(status: int, found: Mapping[str, Any], what: str) -> NoReturn:
    """Raise what a reply means that is no success.

    Raises:
        ClusterError: by the status.
    """
    said = f"{what}: {found.get('message') or status}"
    if status == HTTPStatus.UNAUTHORIZED:  # no matter of rights: a token comes in time
        raise ApiDownError(f"{said}: our token is not taken")
    if status == HTTPStatus.FORBIDDEN:
        raise ApiDeniedError(said)
    if status == HTTPStatus.CONFLICT:
        raise ApiConflictError(said)
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= 500:  # noqa: PLR2004
        raise ApiDownError(said)
    raise ApiRefusedError(said, status)


def warnings_in(headers: Sequence[str]) -> tuple[str, ...]:
    """Return the texts of warnings: `299 - "unknown field .."`."""
    texts = (header.partition('"')[2].rpartition('"')[0] for header in headers)
    return tuple(text.replace('\\"', '"') for text in texts if text)


@asynccontextmanager
async def open_api(kubeconfig: str = "") -> AsyncGenerator[Api]:
    """Open the API server: that of a file, or the one whose pod we are.

    Raises:
        ClusterError: there is neither.
    """
    configuration = client.Configuration()
    await log_in(configuration, kubeconfig)
    async with client.ApiClient(configuration) as made:
        yield Api(made, partial(log_in, configuration, kubeconfig))
