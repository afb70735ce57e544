"""Who we are is looked up again when it is not taken; a real cluster has its own test.

tests/lab/test_tokens_on_a_server.py lets tokens expire under a whole operator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from plimsoll_operator.errors import ApiDownError
from plimsoll_operator.kube.api import NODES, Api, open_api
from tests.support.kubeconfigs import a_kubeconfig, give

GOOD = "Bearer good"


def asked_with(folder: Path, work: Callable[[Api], Awaitable[None]]) -> list[str]:
    """Work with a server that takes one token; return those that it was shown."""
    shown: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        shown.append(request.headers["Authorization"])
        status = 200 if shown[-1] == GOOD else 401
        return web.json_response({"message": "who?"}, status=status)

    async def served() -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        async with TestServer(app) as server:
            file = a_kubeconfig(folder, str(server.make_url("/")))
            async with open_api(str(file)) as api:
                await work(api)

    asyncio.run(served())
    return shown


def test_a_request_is_made_again_with_the_next_token(tmp_path: Path) -> None:
    """Whoever asked learns nothing of it; later requests begin with the new one."""

    async def work(api: Api) -> None:
        give(tmp_path, "good")
        for _ in range(2):
            assert await api.get(NODES, "", "a") == {"message": "who?"}

    assert asked_with(tmp_path, work) == ["Bearer old", GOOD, GOOD]


def test_a_token_that_is_refused_is_not_shown_twice(tmp_path: Path) -> None:
    """It says nothing of our rights: asked again later, the server may take it."""

    async def work(api: Api) -> None:
        with pytest.raises(ApiDownError, match=r"who\?: our token is not taken"):
            await api.get(NODES, "", "a")

    assert asked_with(tmp_path, work) == ["Bearer old"]


def test_a_file_that_is_gone_is_waited_for(tmp_path: Path) -> None:
    """The error is one that everybody tries again after."""

    async def work(api: Api) -> None:
        (tmp_path / "token").unlink()
        with pytest.raises(ApiDownError, match="no cluster to work on"):
            await api.get(NODES, "", "a")

    asked_with(tmp_path, work)
