"""What clients are shown: the same bytes whatever is up, and nothing of what is denied (failure report P5)."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import BRIDGE, PATIENCE, Daemon, Place, proxy, python_server, text_of, until
from raw_client import MODERN, OLD, HttpClient, RawClient, http, stdio

MENU = [
    {"name": "list_notes", "description": "List notes. All of them.", "inputSchema": {"type": "object"}, "x-own": 1},
    {"name": "delete_note", "description": "Delete one note.", "inputSchema": {"type": "object"}},
    {"name": "pid", "description": "Tell the process.", "inputSchema": {"type": "object"}, "title": "PID"},
    {"name": "arguments", "description": "Give back what came.", "inputSchema": {"type": "object"}},
]


def server(
    place: Place, name: str, menu: list[dict[str, Any]] = MENU, flags: tuple[str, ...] = (), **keys: Any
) -> dict[str, Any]:
    """A raw server that lists these tools."""
    folder = place.folder / name
    folder.mkdir(exist_ok=True)
    (folder / "tools.json").write_text(json.dumps(menu), encoding="utf-8")
    return python_server("raw_server", str(folder), *flags, **keys)


def listed(client: RawClient) -> str:
    """`tools/list` as bytes would compare it."""
    return json.dumps(client.request("tools/list")["result"])


def whole(place: Place, config: Path) -> str:
    """What a client of a fresh proxy sees first."""
    with stdio(place, proxy("--config", str(config))) as client:
        return listed(client)


def test_the_list_is_the_same_bytes_again_after_a_restart_and_in_any_order_of_the_config(place: Place) -> None:
    servers = {name: server(place, name) for name in ("alpha", "beta", "gamma")}
    config = place.config(servers, first_list_wait=PATIENCE)
    with stdio(place, proxy("--config", str(config))) as client:
        first = listed(client)
        assert first == listed(client)
        assert "list_notes: List notes" in first and "gamma" in first
    turned = place.config(dict(reversed(servers.items())), "turned.yaml", first_list_wait=PATIENCE)
    assert whole(place, config) == first, "after a restart, from the snapshot"
    assert whole(place, turned) == first, "with the servers in another order"


def test_the_list_is_the_same_bytes_while_a_server_is_down_and_after_it_came_back(place: Place) -> None:
    config = place.config({n: server(place, n) for n in ("alpha", "beta")}, first_list_wait=PATIENCE)
    with Daemon(place, "--config", str(config)) as daemon, http(daemon.url) as client:
        before = listed(client)
        pid = int(text_of(client.through("beta__pid")["result"]))
        os.kill(pid, signal.SIGKILL)
        daemon.stderr.wait(r"server 'beta' is unavailable")
        assert listed(client) == before
        again = until(lambda: up(client, "beta__pid"), "it is back")
        assert int(again) != pid
        assert listed(client) == before
        with http(daemon.url, MODERN) as other:
            assert other.tools() == client.tools()


def up(client: RawClient, tool: str) -> str | None:
    result = client.through(tool)["result"]
    return None if result.get("isError") else text_of(result)


def test_the_first_list_waits_for_an_unknown_server_no_longer_than_it_may(place: Place) -> None:
    servers = {"good": server(place, "good"), "hangs": server(place, "hangs", flags=("--hang",))}
    config = place.config(servers, first_list_wait=1.0)
    with stdio(place, proxy("--config", str(config))) as client:
        started = time.monotonic()
        tools = client.tools()
        waited = time.monotonic() - started
        assert waited < 20, "far less than the 30 s that the server may take to connect"
        assert [tool["name"] for tool in tools] == BRIDGE
        assert "hangs" in tools[0]["description"], "it is named, though nothing is known of it"
        answer = json.loads(text_of(client.call("tool_search", {"query": "nothing like it"})["result"]))
        assert "hangs" in answer["unavailable"]


def test_a_server_that_hangs_now_is_shown_as_it_was_last_seen(place: Place) -> None:
    """The launch is the same; what it starts is another thing today."""
    script = place.folder / "server.py"
    good = server(place, "shy")
    script.symlink_to(good["args"][0])
    entry = {**good, "args": [str(script), *good["args"][1:]], "connect_timeout": 2}
    config = place.config({"shy": entry, "other": server(place, "other")}, first_list_wait=PATIENCE)
    before = whole(place, config)
    assert "shy" in before
    script.unlink()
    script.write_text("import sys\nfor line in sys.stdin: pass\n", encoding="utf-8")
    with stdio(place, proxy("--config", str(config))) as client:
        assert listed(client) == before
        found = json.loads(text_of(client.call("tool_search", {"query": "list notes", "server": "shy"})["result"]))
        assert found["matches"][0]["name"] == "shy__list_notes"
        failed = client.through("shy__list_notes")["result"]
        assert failed["isError"] is True
        assert "did not run" in text_of(failed)


def test_a_broken_snapshot_is_as_good_as_none(place: Place) -> None:
    config = place.config({"alpha": server(place, "alpha")}, first_list_wait=PATIENCE)
    before = whole(place, config)
    files = [path for path in place.cache.rglob("*") if path.is_file()]
    assert files
    for path in files:
        path.write_bytes(b"\x00not what it was" + path.read_bytes()[:50])
    assert whole(place, config) == before


# Eager tools, pinned, denied, renamed; no bridge.


def serve_mixed(place: Place, name: str, menu: list[dict[str, Any]]) -> Iterator[RawClient]:
    """A client of a proxy with eager, pinned, excluded and denied tools, whose bridge has other names."""
    place = Place(place.folder / name)
    servers = {
        "eager": server(place, "eager", menu, lazy=False, deny=["delete_*"]),
        "pins": server(place, "pins", pinned=["pid"], tools={"exclude": ["arguments", "delete_*"]}),
        "hidden": server(place, "hidden", menu, deny=["delete_*"]),
    }
    names = {"search": "find_tool", "describe": "show_tool", "call": "run_tool"}
    config = place.config(servers, tool_search={"names": names}, first_list_wait=PATIENCE)
    with Daemon(place, "--config", str(config)) as daemon, http(daemon.url) as client:
        client.tools()  # waits for every list: a refusal's near names are those of the servers that are known
        yield client
    place.clear()


@pytest.fixture(scope="module")
def mixed(shared_place: Place) -> Iterator[RawClient]:
    yield from serve_mixed(shared_place, "with", MENU)


@pytest.fixture(scope="module")
def without(shared_place: Place) -> Iterator[RawClient]:
    """The same, but what is denied does not exist."""
    yield from serve_mixed(shared_place, "without", [tool for tool in MENU if tool["name"] != "delete_note"])


def test_eager_and_pinned_tools_follow_the_bridge_by_name_and_raw(mixed: RawClient) -> None:
    tools = mixed.tools()
    expected = ["eager__arguments", "eager__list_notes", "eager__pid", "pins__pid"]
    assert [tool["name"] for tool in tools] == ["find_tool", "show_tool", "run_tool", *expected]
    by_name = {tool["name"]: tool for tool in tools}
    assert by_name["eager__list_notes"] == MENU[0] | {"name": "eager__list_notes"}
    assert by_name["pins__pid"] == MENU[2] | {"name": "pins__pid"}
    assert text_of(mixed.call("eager__pid")["result"]).isdecimal()
    assert text_of(mixed.call("pins__pid")["result"]).isdecimal()


def test_the_renamed_bridge_works_and_speaks_of_itself_by_its_names(mixed: RawClient) -> None:
    found = json.loads(text_of(mixed.call("find_tool", {"query": "list notes"})["result"]))
    names = {match["name"] for match in found["matches"]}
    assert {"hidden__list_notes", "eager__list_notes"} <= names, "eager tools can be found too"
    described = json.loads(text_of(mixed.call("show_tool", {"name": "hidden__list_notes"})["result"]))
    assert described["tools"][0]["tool"] == "list_notes"
    result = mixed.call("run_tool", {"name": "hidden__pid", "arguments": {}})["result"]
    assert text_of(result).isdecimal()
    told = json.dumps(mixed.tools()[:3]) + text_of(mixed.call("run_tool", {"name": "nothing_like_it"})["result"])
    assert "find_tool" in told
    assert not any(name in told for name in BRIDGE)


def test_what_is_denied_is_nowhere_to_be_seen(mixed: RawClient) -> None:
    seen = [json.dumps(mixed.tools())]
    for asked in (
        {"query": "delete note"},
        {"server": "hidden"},
        {"server": "eager"},
        {"query": "hidden__delete_note"},
    ):
        found = text_of(mixed.call("find_tool", {**asked, "detail": "full"})["result"])
        assert json.loads(found)["total"] == 3 + 2 + 3
        seen += [match["name"] for match in json.loads(found)["matches"]]
    assert not [text for text in seen if "delete_note" in text]


@pytest.mark.parametrize("name", ["hidden__delete_note", "hidden.delete_note", "eager__delete_note", "delete_note"])
def test_what_is_denied_is_answered_exactly_as_what_does_not_exist(
    name: str, mixed: RawClient, without: RawClient
) -> None:
    def answers(client: RawClient) -> list[Any]:
        ways = [("run_tool", {"name": name, "arguments": {}}), (name, {}), ("show_tool", {"name": name})]
        return [client.call(*way)["result"] for way in ways]

    assert answers(mixed) == answers(without)
    assert [answer.get("isError") for answer in answers(mixed)][:2] == [True, True]


def test_without_the_bridge_every_tool_is_shown_as_it_is(place: Place) -> None:
    servers = {"one": server(place, "one"), "two": server(place, "two", deny=["pid"])}
    text = f"servers: {json.dumps(servers)}\ntool_search:\n  enabled: off\nfirst_list_wait: {PATIENCE}\n"
    config = place.folder / "off.yaml"
    config.write_text(text, encoding="utf-8")
    with stdio(place, proxy("--config", str(config)), MODERN) as client:
        tools = client.tools()
        expected = sorted([f"one__{t['name']}" for t in MENU] + [f"two__{t['name']}" for t in MENU if t != MENU[2]])
        assert [tool["name"] for tool in tools] == expected
        assert tools[2] == MENU[0] | {"name": "one__list_notes"}
        assert text_of(client.call("one__pid")["result"]).isdecimal()
        assert client.call("two__pid")["result"]["isError"] is True
        sent = {"anything": [1, {"b": None}]}
        line = json.loads(text_of(client.call("one__arguments", sent)["result"]))
        assert line["params"]["arguments"] == sent


@pytest.mark.parametrize("mode", [{"enabled": "off"}, {"eager_below_tokens": 8_000}], ids=["off", "small"])
def test_without_the_bridge_nothing_is_validated_and_no_search_advised(mode: dict[str, Any], place: Place) -> None:
    menu = [{**tool, "inputSchema": {"type": "object", "required": ["x"]}} for tool in MENU]
    config = place.config({"one": server(place, "one", menu)}, tool_search=mode, first_list_wait=PATIENCE)
    with stdio(place, proxy("--config", str(config))) as client:
        assert [tool["name"] for tool in client.tools()] == sorted(f"one__{tool['name']}" for tool in menu)
        assert not client.call("one__pid")["result"].get("isError")
        for name in ("one__pidd", "qqqq"):
            said = text_of(client.call(name)["result"])
            assert name in said and "tool_search" not in said


def test_a_change_of_a_servers_list_is_announced_and_found(place: Place) -> None:
    config = place.config({"alpha": server(place, "alpha")}, first_list_wait=PATIENCE)
    with Daemon(place, "--config", str(config)) as daemon, http(daemon.url, OLD) as client:
        before = listed(client)
        new = {"name": "brand_new", "description": "A new tool.", "inputSchema": {"type": "object"}}
        (place.folder / "alpha" / "tools.json").write_text(json.dumps([*MENU, new]), encoding="utf-8")
        headers = {**client.session, "accept": "text/event-stream"}
        with client.http.stream("GET", daemon.url, headers=headers) as standing:
            # It lists again when it has been started again.
            os.kill(int(text_of(client.through("alpha__pid")["result"])), signal.SIGKILL)
            told = next(m for m in client.messages(standing) if m["method"] == "notifications/tools/list_changed")
        assert told
        assert listed(client) != before
        assert "brand_new" in listed(client)
        assert isinstance(client, HttpClient)
