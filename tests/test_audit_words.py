"""What the log and `narrow-waist audit` say of a call that came to nothing."""

import argparse
import logging
from pathlib import Path

import pytest
from guarded_house import OLD, house, stdio, upstream, write

from proxy.cli import audit


async def test_a_call_above_the_rate_limit_is_not_written_down_as_of_a_tool_that_does_not_exist(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was `call unknown tool 'time__get_current_time'`, and `-/time__get_current_time` in the audit."""
    server = upstream(tmp_path / "s", {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]})
    guard = {"audit": {"file": "audit.jsonl"}}
    path = write(tmp_path / "upstreams.yaml", {"s": server}, guard=guard, profiles={"default": {"rate_limit": 1}})
    with caplog.at_level(logging.INFO, "proxy.dispatch"):
        async with house(path, clients=1, profiles=()) as app, stdio(app, OLD) as client:
            await client.hello()
            await client.request("tools/list")
            for _ in range(2):
                await client.through("s__look")
    assert "call 's__look' by guarded-client: refused: rate limit" in caplog.text
    assert "unknown tool" not in caplog.text
    options = argparse.Namespace(
        config=str(path), demo=False, server=None, tool=None, caller=None, failed=True, last=0, json=False
    )
    assert audit.run(options) == 0
    assert "s__look (not looked up) - refused: rate limit" in capsys.readouterr().out
