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

from plimsoll_operator.errors import ApiDownError, ClusterError
from plimsoll_operator.kube.api import NODES, Api, open_api
from plimsoll_operator.kube.login import PAUSE_S, RENEW_S, Logins
from tests.support.kubeconfigs import a_kubeconfig, give

GOOD = "Bearer good"


def solve_cache(folder: Path, work: Callable[[Api], Awaitable[None]]) -> list[str]:
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

    assert solve_cache(tmp_path, work) == ["Bearer old", GOOD, GOOD]


def test_a_token_that_is_refused_is_not_shown_twice(tmp_path: Path) -> None:
    """It says nothing of our rights: asked again later, the server may take it."""

    async def work(api: Api) -> None:
        with pytest.raises(ApiDownError, match=r"who\?: our token is not taken"):
            await api.get(NODES, "", "a")

    assert solve_cache(tmp_path, work) == ["Bearer old"]


def test_a_file_that_is_gone_is_waited_for(tmp_path: Path) -> None:
    """The error is one that everybody tries again after."""

    async def work(api: Api) -> None:
        (tmp_path / "token").unlink()
        with pytest.raises(ApiDownError, match="no cluster to work on"):
            await api.get(NODES, "", "a")

    solve_cache(tmp_path, work)


def pauses_of(monkeypatch: pytest.MonkeyPatch, folder: Path, token: str) -> list[float]:
    """Return the pauses of logins, with a token that comes while one waits."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)
        give(folder, token)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return found


def test_a_login_that_was_refused_is_not_made_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the token is another one by now; what is there after a pause is taken."""
    logins = Logins(str(a_kubeconfig(tmp_path, "https://a")), clock=lambda: 0.0)
    pauses = pauses_of(monkeypatch, tmp_path, "third")

    async def tokens() -> list[str | None]:
        found = [(await logins.next()).token]
        give(tmp_path, "second")
        return [*found, *[(await logins.next()).token for _ in range(2)]]

    assert asyncio.run(tokens()) == ["old", "second", "third"]
    assert pauses == [PAUSE_S]


def test_a_login_that_has_run_out_is_made_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same token serves on; kopf takes it, for it is to last until another time."""
    now_s = iter((0.0, RENEW_S, RENEW_S))
    file = a_kubeconfig(tmp_path, "https://a")
    logins = Logins(str(file), clock=lambda: next(now_s))
    pauses = pauses_of(monkeypatch, tmp_path, "other")

    async def twice() -> None:
        first, second = await logins.next(), await logins.next()
        assert (first.scheme, first.token) == (second.scheme, second.token)
        assert (first.server, first.scheme) == ("https://a", "Bearer")
        assert second.expiration > first.expiration

    asyncio.run(twice())
    assert pauses == []


def test_a_login_without_a_cluster_says_what_to_set(tmp_path: Path) -> None:
    """Whoever runs it at home has forgotten the file."""
    with pytest.raises(ClusterError, match="run in a pod, or set KUBECONFIG"):
        asyncio.run(Logins(str(tmp_path / "none")).next())
