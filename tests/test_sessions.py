"""Sessions over HTTP: only a POST may open one."""

from pathlib import Path

import pytest
from guarded_house import MODERN, OLD, Daemon, daemon, house, write


async def asked(front: Daemon, method: str, **headers: str) -> tuple[int, dict[str, str]]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = await front.http.request(method, "/mcp", headers=named)
    return response.status_code, dict(response.headers)


@pytest.mark.parametrize(
    ("method", "status"),
    [("HEAD", 405), ("PUT", 405), ("OPTIONS", 405), ("PATCH", 405), ("GET", 400), ("DELETE", 400)],
)
async def test_a_request_that_cannot_open_a_session_is_given_none(
    method: str, status: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It got the id of a session that was gone already; at the limit of sessions it was told to come back later."""
    caplog.set_level("INFO", "mcp")
    path = write(tmp_path / "upstreams.json", {}, guard={"max_sessions": 1})
    async with house(path) as app, daemon(app) as front:
        await front.client(OLD).hello()
        caplog.clear()
        code, headers = await asked(front, method, accept="application/json, text/event-stream")
        assert code == status and "mcp-session-id" not in headers
        assert (headers.get("allow") == "GET, POST, DELETE") is (status == 405)
        assert len(app.server.sdk.session_manager._server_instances) == 1
        assert "Created new transport" not in caplog.text


@pytest.mark.parametrize("method", ["HEAD", "GET", "DELETE"])
async def test_a_stateless_client_is_told_that_only_post_is_for_it(method: str, tmp_path: Path) -> None:
    async with house(write(tmp_path / "upstreams.json", {})) as app, daemon(app) as front:
        code, headers = await asked(front, method, mcp_protocol_version=MODERN)
        assert (code, headers["allow"]) == (405, "POST") and "mcp-session-id" not in headers


async def test_head_of_the_sse_door_is_refused_and_starts_nothing(tmp_path: Path) -> None:
    """It was answered twice, which uvicorn logged as an error each time."""
    async with house(write(tmp_path / "upstreams.json", {})) as app, daemon(app) as front:
        response = await front.http.head("/sse")
    assert (response.status_code, response.headers["allow"]) == (405, "GET")
