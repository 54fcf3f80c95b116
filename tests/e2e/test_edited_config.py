"""The configuration is edited while the proxy runs: what has changed is taken up, and nothing else is disturbed."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from harness import PATIENCE, Daemon, Place, proxy, python_server, text_of, until
from raw_client import ERAS, MODERN, OLD, RawClient, http, stdio


def server(place: Place, name: str, *flags: str, **keys: Any) -> dict[str, Any]:
    return python_server("raw_server", str(place.folder / name), *flags, **keys)


def pid(client: RawClient, server: str) -> int | None:
    """Of the server's process; None where it cannot be called."""
    result = client.through(f"{server}__pid")["result"]
    return None if result.get("isError") else int(text_of(result))


def said(client: RawClient, name: str) -> str:
    """What a call of a tool is answered with."""
    return text_of(client.through(name)["result"])


def edit(config: Path, servers: dict[str, Any], **root: Any) -> None:
    """As an editor does it: written beside, and moved into its place."""
    new = config.with_suffix(".new")
    new.write_text(json.dumps({"servers": servers, "first_list_wait": PATIENCE, **root}), encoding="utf-8")
    os.replace(new, config)


@pytest.mark.parametrize("era", ERAS)
def test_servers_come_and_go_in_a_daemon_and_the_others_are_not_disturbed(place: Place, era: str) -> None:
    stays, goes, comes = (server(place, name) for name in ("stays", "goes", "comes"))
    config = place.config({"stays": stays, "goes": goes}, first_list_wait=PATIENCE)
    with Daemon(place, "--config", str(config)) as daemon, http(daemon.url, era) as client:
        before = pid(client, "stays"), pid(client, "goes")
        assert all(before)
        assert "comes" not in json.dumps(client.tools())
        edit(config, {"stays": stays, "comes": comes})
        daemon.stderr.wait(r"was read again: new: comes; gone: goes$")
        new = until(lambda: pid(client, "comes"), "the new server is called")
        assert new not in before
        assert "There is no tool 'goes__pid'" in said(client, "goes__pid")
        until(lambda: "comes" in json.dumps(client.tools()), "it is listed")
        assert "goes" not in json.dumps(client.tools())
        assert pid(client, "stays") == before[0]
        until(lambda: before[1] not in place.processes(), "the process of the one that is gone has ended")


def test_a_client_over_stdio_is_told_of_the_change(place: Place) -> None:
    one, two = server(place, "one"), server(place, "two")
    config = place.config({"one": one}, first_list_wait=PATIENCE)
    with stdio(place, proxy("--config", str(config))) as client:
        before = client.tools()
        edit(config, {"one": one, "two": two})
        while client.receive().get("method") != "notifications/tools/list_changed":
            pass
        assert client.tools() != before
        assert pid(client, "two")


def test_a_client_over_stdio_is_told_that_it_may_see_less_and_nothing_once_it_is_not_to_be(place: Place) -> None:
    """It has shown nothing of itself, so that its scope is another one when a default profile comes."""
    one, two = server(place, "one"), server(place, "two")
    config = place.config({"one": one, "two": two}, first_list_wait=PATIENCE)
    with stdio(place, proxy("--config", str(config))) as client:
        assert json.dumps(client.tools()).count("Test die") == 2
        less = {"toolsets": {"two": {"tools": ["two/die"]}}, "profiles": {"default": {"disabled": ["two"]}}}
        edit(config, {"one": one, "two": two}, **less)
        while client.receive().get("method") != "notifications/tools/list_changed":
            pass
        assert json.dumps(client.tools()).count("Test die") == 1
        never = {"tool_search": {"announce_changes": "never"}, **less}
        for name in ("count", "wait"):
            assert f"Test {name}" in json.dumps(client.tools())
            edit(config, {"one": {**one, "deny": [name]}, "two": {**two, "deny": [name]}}, **never)
            until(lambda name=name: f"Test {name}" not in json.dumps(client.tools()), "the change is taken up")
    assert [each["method"] for each in client.seen if "method" in each].count("notifications/tools/list_changed") == 1


def test_what_a_process_knows_nothing_of_changes_behind_its_back(place: Place) -> None:
    one = server(place, "one")
    config = place.config({"one": one}, first_list_wait=PATIENCE)
    with Daemon(place, "--config", str(config)) as daemon, http(daemon.url) as client:
        before = pid(client, "one")
        assert "Test count" in json.dumps(client.tools())
        assert said(client, "one__count") == "counted"
        edit(config, {"one": {**one, "deny": ["count"]}})
        until(lambda: "There is no tool" in said(client, "one__count"), "the tool is denied")
        assert pid(client, "one") == before
        assert "Test count" not in json.dumps(client.tools())


def test_a_server_that_is_started_otherwise_is_started_anew_and_its_calls_end_first(place: Place) -> None:
    slow = server(place, "slow")
    config = place.config({"slow": slow}, first_list_wait=PATIENCE)
    with Daemon(place, "--config", str(config)) as daemon, http(daemon.url) as client:
        before = pid(client, "slow")
        edit(config, {"slow": {**slow, "env": {"NEW": "1"}}})
        until(lambda: pid(client, "slow") not in (before, None), "another process answers")
        until(lambda: before not in place.processes(), "the first has ended")
        assert "slow__pid" in text_of(client.call("tool_search", {"query": "pid"})["result"])


def test_a_broken_file_changes_nothing_and_is_told_until_it_is_mended(place: Place) -> None:
    one, two = server(place, "one"), server(place, "two")
    config = place.config({"one": one}, first_list_wait=PATIENCE)
    with Daemon(place, "--config", str(config)) as daemon, http(daemon.url) as client:
        before = pid(client, "one")
        config.write_text("servers:\n  one: {comand: x}\n", encoding="utf-8")
        line = daemon.stderr.wait(r"cannot be used; what was configured before stays.*")[0]
        assert "did you mean 'command'" in line and f"{config}" in line
        assert pid(client, "one") == before
        config.unlink()
        edit(config, {"one": one, "two": two})
        assert until(lambda: pid(client, "two"), "the mended one is taken up")
        assert pid(client, "one") == before


@pytest.mark.parametrize("era", ERAS)
def test_a_guard_that_is_added_guards_the_clients_that_are_there(place: Place, era: str) -> None:
    one = server(place, "one")
    config = place.config({"one": one}, first_list_wait=PATIENCE)
    with Daemon(place, "--config", str(config)) as daemon, http(daemon.url, era) as client:
        assert said(client, "one__count") == "counted"
        guard = {"risk": {"destructive": ["one/count"]}, "audit": {"file": "audit.jsonl"}}
        edit(config, {"one": one}, guard=guard, profiles={"default": {"policy": {"destructive": "deny"}}, "all": {}})
        daemon.stderr.wait(r"was read again: also .*guard")
        with http(daemon.url, era) as other:  # a handshake client's session was of another scope, and is over
            assert "There is no tool" in said(other, "one__count")
            assert pid(other, "one")
        with http(f"{daemon.url}/all", era) as whole:
            assert said(whole, "one__count") == "counted"
        assert "one" in until(lambda: _read(place.folder / "audit.jsonl"), "the audit has lines")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def test_what_only_a_start_takes_up_is_said(place: Place) -> None:
    one = server(place, "one")
    config = place.config({"one": one}, first_list_wait=PATIENCE)
    with Daemon(place, "--config", str(config)) as daemon:
        edit(config, {"one": one}, allowed_hosts=["box.example"], guard={"max_sessions": 7})
        daemon.stderr.wait(r"allowed_hosts, guard\.max_sessions: taken up when the daemon is started again")


def test_a_secret_that_comes_with_a_change_is_masked_like_those_before(place: Place) -> None:
    secret = "the-secret-that-came-later"
    one = server(place, "one")
    config = place.config({"one": one}, first_list_wait=PATIENCE)
    with Daemon(place, "--config", str(config)) as daemon, http(daemon.url) as client:
        broken = {"command": "sh", "args": ["-c", "echo dies of $KEY >&2; exit 1"], "env": {"KEY": secret}}
        edit(config, {"one": one, "broken": broken})
        assert "***" in daemon.stderr.wait(r"server 'broken' is unavailable.*dies of.*")[0]
        shown = json.dumps(client.call("tool_search", {"query": "broken"}))
        assert secret not in daemon.stderr.text + shown


def test_the_file_of_a_profile_that_every_caller_has_cannot_lose_it(place: Place) -> None:
    one = server(place, "one")
    profiles = {"mine": {}}
    config = place.config({"one": one}, first_list_wait=PATIENCE, profiles=profiles)
    with stdio(place, proxy("--config", str(config), "--profile", "mine"), MODERN) as client:
        before = pid(client, "one")
        edit(config, {"one": {**one, "description": "changed"}}, profiles={"yours": {}})
        client.stderr.wait(r"what was configured before stays: there is no profile 'mine'")
        assert pid(client, "one") == before
        assert "changed" not in json.dumps(client.tools())


def test_old_and_new_clients_are_served_after_many_changes_at_once(place: Place) -> None:
    """Ten edits behind one another: the last one counts, and no process of the others is left."""
    one = server(place, "one")
    config = place.config({"one": one}, first_list_wait=PATIENCE)
    with Daemon(place, "--config", str(config)) as daemon, http(daemon.url, OLD) as client:
        assert pid(client, "one")
        for number in range(10):
            edit(config, {"one": one, f"more{number}": server(place, f"more{number}")})
        assert until(lambda: pid(client, "more9"), "the last one is there")
        for number in range(9):
            assert "There is no tool" in said(client, f"more{number}__pid")
        until(lambda: len(place.upstreams()) == 2, "no other process is left")
