"""What requests look like on the wire, and what is made of replies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from plimsoll_operator.errors import (
    ApiConflictError,
    ApiDeniedError,
    ApiDownError,
    ApiRefusedError,
    ClusterError,
)
from plimsoll_operator.kube.api import (
    CONFIG_MAPS,
    METADATA_ONLY,
    NODES,
    PLANS,
    TOKEN_REVIEWS,
    Api,
    open_api,
)
from tests.support.kubeconfigs import a_kubeconfig

MERGE = "application/merge-patch+json"


@dataclass(frozen=True, kw_only=True)
class Sent:
    """One request, as the server has read it."""

    verb: str
    path: str
    """As it was sent, quotes included."""
    query: dict[str, str]
    accept: str
    content_type: str
    body: Any


Reply = web.Response
Replies = Callable[[Sent], Reply]


def asked(
    folder: Path, work: Callable[[Api], Awaitable[None]], reply: Replies
) -> list[Sent]:
    """Work with a server that replies so; return what it was asked."""
    found: list[Sent] = []

    async def answer(request: web.Request) -> web.Response:
        found.append(
            Sent(
                verb=request.method,
                path=request.raw_path.partition("?")[0],
                query=dict(request.query),
                accept=request.headers.get("Accept", ""),
                content_type=request.headers.get("Content-Type", ""),
                body=await request.json() if request.can_read_body else None,
            )
        )
        return reply(found[-1])

    async def served() -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        async with TestServer(app) as server:
            file = a_kubeconfig(folder, str(server.make_url("")).rstrip("/"))
            async with open_api(str(file)) as api:
                await work(api)

    asyncio.run(served())
    return found


def says(status: int, **fields: object) -> Replies:
    """A server that always says the same."""
    return lambda _: web.json_response(fields, status=status)


def test_an_object_is_asked_for_by_its_path(tmp_path: Path) -> None:
    """Names are quoted: none leads to another object."""

    async def work(api: Api) -> None:
        assert await api.get(PLANS, "ml", "a") == {"a": 1}
        assert await api.get(NODES, "ignored", "a/../b?c") == {"a": 1}

    first, second = asked(tmp_path, work, says(200, a=1))
    assert (first.verb, first.path) == (
        "GET",
        "/apis/plimsoll.dev/v1alpha1/namespaces/ml/trainingplans/a",
    )
    assert second.path == "/api/v1/nodes/a%2F..%2Fb%3Fc"
    assert (first.query, first.accept) == ({}, "application/json")


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    """And deleting it is done."""

    async def work(api: Api) -> None:
        assert await api.get(CONFIG_MAPS, "ml", "a") is None
        await api.delete(CONFIG_MAPS, "ml", "a", uid="7", foreground=True)

    _, deleted = asked(tmp_path, work, says(404, message="no"))
    assert deleted.verb == "DELETE"
    assert deleted.body == {
        "preconditions": {"uid": "7"},
        "propagationPolicy": "Foreground",
    }


def test_another_object_of_the_name_is_left_alone(tmp_path: Path) -> None:
    """The server compares the uid; that it refuses is no error."""

    async def work(api: Api) -> None:
        await api.delete(CONFIG_MAPS, "ml", "a", uid="7")

    [sent] = asked(tmp_path, work, says(409, message="another uid"))
    assert sent.body["propagationPolicy"] == "Background"


def test_lists_come_in_pages(tmp_path: Path) -> None:
    """The server's token leads from one to the next; null stands for none."""

    def reply(sent: Sent) -> Reply:
        is_first = "continue" not in sent.query
        metadata = {"continue": "t=/+&"} if is_first else {}
        items = [{"metadata": {"name": "a"}}] if is_first else None
        return web.json_response({"metadata": metadata, "items": items})

    async def work(api: Api) -> None:
        found = await api.list(PLANS, labels="a=b,c", metadata_only=True)
        assert found == [{"metadata": {"name": "a"}}]

    first, second = asked(tmp_path, work, reply)
    assert first.path == "/apis/plimsoll.dev/v1alpha1/trainingplans"
    assert first.query == {"labelSelector": "a=b,c", "limit": "500"}
    assert second.query == first.query | {"continue": "t=/+&"}
    assert {first.accept, second.accept} == {METADATA_ONLY}


def test_of_a_kind_that_may_be_absent_there_are_no_objects(tmp_path: Path) -> None:
    """Of any other kind that the server does not know, it is an error."""

    async def work(api: Api) -> None:
        assert await api.list(replace(NODES, is_optional=True)) == []
        with pytest.raises(ApiRefusedError):
            await api.list(NODES)

    asked(tmp_path, work, lambda _: web.json_response({}, status=404))


def test_what_is_made_is_held_to_the_schema(tmp_path: Path) -> None:
    """Unknown fields are refused; the server's warnings are handed on."""

    def reply(sent: Sent) -> Reply:
        headers = [("Warning", '299 - "a \\"b\\""'), ("Warning", '299 - "c"')]
        return web.json_response({"made": sent.body}, status=201, headers=headers)

    async def work(api: Api) -> None:
        made = await api.create(CONFIG_MAPS, "ml", {"data": None}, dry_run=True)
        assert made.object == {"made": {"data": None}}
        assert made.warnings == ('a "b"', "c")
        await api.create(TOKEN_REVIEWS, "", {"spec": {}})

    first, second = asked(tmp_path, work, reply)
    assert first.query == {"fieldValidation": "Strict", "dryRun": "All"}
    assert first.content_type == "application/json"
    assert second.path == "/apis/authentication.k8s.io/v1/tokenreviews"
    assert second.query == {"fieldValidation": "Strict"}


def test_a_part_of_an_object_is_written_alone(tmp_path: Path) -> None:
    """A status is merged or replaced below its own path; nulls are kept."""
    change = {"metadata": {"name": "a"}, "status": {"plan": None}}

    async def work(api: Api) -> None:
        await api.patch(PLANS, "ml", "a", change, part="status")
        await api.replace(PLANS, "ml", change, part="status")

    patched, replaced = asked(tmp_path, work, says(200))
    assert (patched.verb, patched.content_type) == ("PATCH", MERGE)
    assert (replaced.verb, replaced.content_type) == ("PUT", "application/json")
    assert patched.path == replaced.path
    assert patched.path.endswith("/trainingplans/a/status")
    assert patched.body == replaced.body == change


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (403, ApiDeniedError),
        (409, ApiConflictError),
        (422, ApiRefusedError),
        (429, ApiDownError),
        (500, ApiDownError),
        (503, ApiDownError),
    ],
)
def test_an_error_says_what_to_do(
    status: int, kind: type[ClusterError], tmp_path: Path
) -> None:
    """Try again, look again, ask a person, or ask for something else."""

    async def work(api: Api) -> None:
        with pytest.raises(ClusterError, match=r"POST /api/v1/.*/configmaps: why") as e:
            await api.create(CONFIG_MAPS, "ml", {})
        assert type(e.value) is kind

    asked(tmp_path, work, says(status, message="why"))


def test_a_page_of_a_proxy_is_cut_to_a_line(tmp_path: Path) -> None:
    """It may be long."""
    page = web.Response(status=502, text="<html>\né" + "x" * 1000)

    async def work(api: Api) -> None:
        with pytest.raises(ApiDownError, match=r"<html>") as error:
            await api.get(NODES, "", "a")
        assert len(str(error.value)) < 300

    asked(tmp_path, work, lambda _: page)


def test_a_server_that_is_gone_is_down(tmp_path: Path) -> None:
    """Asked again, it may be back."""

    async def work() -> None:
        file = a_kubeconfig(tmp_path, "http://127.0.0.1:9")
        async with open_api(str(file)) as api:
            with pytest.raises(ApiDownError, match="does not answer"):
                await api.get(NODES, "", "a")

    asyncio.run(work())
