"""Scopes, as pure functions: for any configuration, what a scope hides cannot be told from what is not there."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy import bridge
from proxy.catalog import Catalog, NotFound, make_server
from proxy.config import ServerConfig, Settings, load
from proxy.errors import ConfigError
from proxy.guard.base import Base
from proxy.guard.lock import Lock
from proxy.guard.policy import Policy
from proxy.guard.scope import Scopes
from proxy.listing import lines, render
from proxy.offers import Offer, Offers
from proxy.search import Index, unknown_name
from proxy.tokens import estimate

SERVERS = ("alpha", "beta", "alpha/x")
TOOLS = ("get_page", "list_pages", "drop_page", "drop_all", "page", "x/get_page", "get_pages_raw")
GLOBS = ("alpha/*", "beta/get_*", "*/drop_*", "alpha/x/*", "*/*page*", "beta/page", "alpha/get_page", "*/[gl]*")
NOTES: tuple[dict[str, bool], ...] = ({}, {"readOnlyHint": True}, {"destructiveHint": True}, {"readOnlyHint": False})

toolset = st.fixed_dictionaries(
    {
        "servers": st.lists(st.sampled_from((*SERVERS, "al*")), max_size=2),
        "tools": st.lists(st.sampled_from(GLOBS), max_size=3),
    }
)
decision = st.sampled_from(["allow", "ask", "deny"])
some = st.lists(st.sampled_from(["a", "b"]), max_size=2, unique=True)
profile = st.fixed_dictionaries(
    {},
    optional={
        "enabled": some,
        "disabled": some,
        "policy": st.fixed_dictionaries({}, optional={"read": decision, "write": decision, "destructive": decision}),
    },
)
configuration = st.fixed_dictionaries(
    {
        "toolsets": st.fixed_dictionaries({"a": toolset, "b": toolset}),
        "profiles": st.fixed_dictionaries({"one": profile, "two": profile}),
        "guard": st.fixed_dictionaries(
            {
                "default_risk": st.sampled_from(["read", "write", "destructive"]),
                "lock": st.sampled_from(["off", "warn", "strict"]),
            }
        ),
    }
)
names = st.lists(st.sampled_from(("drop_*", "page", "get_page", "x/*")), max_size=2, unique=True)
options = st.dictionaries(
    st.sampled_from(SERVERS),
    st.fixed_dictionaries(
        {}, optional={"deny": names, "tools": st.fixed_dictionaries({"exclude": names}), "enabled": st.booleans()}
    ),
)
approved = st.dictionaries(st.sampled_from(SERVERS), st.dictionaries(st.sampled_from(TOOLS), st.booleans()))
"""The tools of each server that are in the lock; False: with another definition."""
listed = st.dictionaries(
    st.sampled_from(SERVERS), st.dictionaries(st.sampled_from(TOOLS), st.sampled_from(NOTES), max_size=6)
)


def read(folder: Path, root: dict[str, Any]) -> Settings:
    file = folder / "upstreams.yaml"
    given = root.get("servers", {})
    servers = {key: {"command": "x", **given.get(key, {})} for key in SERVERS}
    file.write_text(json.dumps({**root, "servers": servers}), encoding="utf-8")
    return load(file, {})


def raw(server: str, name: str, notes: dict[str, bool], description: str = "") -> dict[str, Any]:
    schema = {"type": "object"}
    text = description or f"{name} of {server}"
    return {"name": name, "description": text, "inputSchema": schema, "annotations": notes}


def catalog(config: Settings, tools: dict[str, dict[str, dict[str, bool]]]) -> Catalog:
    return Catalog(
        make_server(server, [raw(server.key, n, notes) for n, notes in tools.get(server.key, {}).items()])
        for server in config.servers
        if server.enabled
    )


def everything_offered(config: Settings) -> Offers:
    """A resource, a template and a prompt of each server; one URI is everybody's."""
    return Offers(
        Offer(
            server.key,
            ({"uri": "file:///same"}, {"uri": f"file:///{server.key}"}),
            ({"uriTemplate": f"{server.key}://{{x}}"},),
            ({"name": "p"},),
        )
        for server in config.servers
        if server.enabled
    )


def lock_of(known: dict[str, dict[str, bool]], tools: dict[str, dict[str, dict[str, bool]]]) -> Lock:
    lock = Lock()
    for key, each in known.items():
        raws = [
            raw(key, n, tools.get(key, {}).get(n, {}), "" if as_it_is else "otherwise") for n, as_it_is in each.items()
        ]
        lock = lock.approved(key, make_server(ServerConfig(key, "stdio"), raws).tools, "")
    return lock


def told_of_offers(offers: Offers) -> list[Any]:
    """The same of resources and prompts."""
    said: list[Any] = [offers.resources, offers.templates, offers.prompts, offers.prompt("p")]
    for key in SERVERS:
        said += [offers.owner(f"file:///{key}"), offers.owner(f"{key}://x"), offers.prompt(f"{key}__p")]
    return said


def told(config: Settings, view: Catalog) -> list[Any]:
    """Everything that is computed from a view for somebody to read."""
    # A bare name that a denied tool has too means nothing, by the contract of names: no sign of the tool, but a sign.
    denied = {name for server in view.servers.values() for name in server.denied}
    search = config.tool_search
    listing = render(view, budget=3_000, slots=[None], mode="auto", count=estimate)
    said: list[Any] = [listing.slots, list(lines(view)), [t.public_name for t in view.tools], list(view.servers)]
    index = Index(view)
    queries = ({}, {"query": "drop page"}, {"query": "pages"}, {"server": "beta"}, {"query": "alpha get"})
    said += [bridge.search_answer(query, view, index, search, unavailable={}) for query in queries]
    for tool in TOOLS:
        bare = () if tool in denied else (tool,)
        for name in (*bare, *(f"{key}{sep}{tool}" for key in SERVERS for sep in ("__", "."))):
            said.append(bridge.describe_answer({"name": name}, view, search, unavailable={}))
            try:
                said.append(view.resolve(name).public_name)
            except NotFound as miss:
                said.append(unknown_name(view, miss, search.search_name))
    return said


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(configuration, listed, options, approved, st.sampled_from([("one",), ("two",), ("one", "two")]))
def test_what_a_configuration_hides_might_as_well_not_exist(
    tmp_path: Path,
    root: dict[str, Any],
    tools: dict[str, dict[str, dict[str, bool]]],
    servers: dict[str, Any],
    known: dict[str, dict[str, bool]],
    scope: tuple[str, ...],
) -> None:
    config = read(tmp_path, {**root, "servers": servers})
    assert config.guard is not None
    scopes, lock = Scopes(config, Policy(config.guard)), lock_of(known, tools)
    locks = config.guard.lock != "off"

    def seen(listed: dict[str, dict[str, dict[str, bool]]], names: tuple[str, ...]) -> Catalog:
        base = Base(config, lambda: lock if locks else None)
        return scopes.view(base.catalog(catalog(config, listed)), names)

    view, sent = seen(tools, scope), catalog(config, tools)
    kept = {(tool.server, tool.name) for tool in view.tools}
    # A tool that is denied by the configuration stays: that it is denied is told of no name but its bare one.
    denied = {(server.key, name) for server in sent.servers.values() for name in server.denied}
    less = {key: {n: notes for n, notes in have.items() if (key, n) in kept | denied} for key, have in tools.items()}
    bare = {key: {n: notes for n, notes in have.items() if (key, n) in kept} for key, have in tools.items()}
    assert told(config, view) == told(config, seen(less, scope))
    if not {n for _, n in denied} & {n for have in bare.values() for n in have}:
        assert told_of_names(config, view, denied) == told_of_names(config, seen(bare, scope), denied)
    for tool in sent.tools:
        off = lock.difference(tool.server, sent.servers[tool.server].tools, "")
        approved = tool.name not in (*off.new, *off.changed)
        withheld = config.guard.lock == "strict" and not approved
        # (The second look, `denies`, agrees with the first: risks are of the tool as the lock marks it.)
        marked = replace(tool, locked=locks and approved)
        assert ((tool.server, tool.name) in kept) == (not withheld and not scopes.denies(marked, scope))
    alone = [{(t.server, t.name) for t in seen(tools, (name,)).tools} for name in scope]
    assert kept == set.intersection(*alone), "several profiles leave what each of them leaves"

    base = Base(config, lambda: lock if locks else None)
    offers = everything_offered(config)
    left = scopes.offers(base.offers(offers), scope)
    opened = {each.server for each in left}
    assert told_of_offers(left) == told_of_offers(Offers(each for each in offers if each.server in opened))
    for each in offers:
        shut = config.guard.lock == "strict" and not lock.servers.get(each.server)
        assert (each.server in opened) == (scopes.opens(each.server, scope) and not shut)


def told_of_names(config: Settings, view: Catalog, names: set[tuple[str, str]]) -> list[Any]:
    """What is said to whoever asks for these tools by every name they could have."""
    search = config.tool_search
    said: list[Any] = []
    for server, tool in sorted(names):
        for name in (tool, f"{server}__{tool}", f"{server}.{tool}", f"mcp__{server}__{tool}"):
            said.append(bridge.describe_answer({"name": name}, view, search, unavailable={}))
            try:
                said.append(view.resolve(name).public_name)
            except NotFound as miss:
                said.append(unknown_name(view, miss, search.search_name))
    return said


def test_a_profile_that_is_gone_leaves_nothing(tmp_path: Path) -> None:
    config = read(tmp_path, {"profiles": {"one": {}}, "guard": {}})
    assert config.guard is not None
    scopes = Scopes(config, Policy(config.guard))
    everything = catalog(config, {"alpha": {"page": {}}})
    assert scopes.view(everything, ("one",)).tools and not scopes.view(everything, ("removed",)).servers


def test_resources_belong_to_whoever_holds_the_server_whole(tmp_path: Path) -> None:
    root = {
        "toolsets": {"whole": {"servers": ["alpha"]}, "some": {"tools": ["beta/*"]}},
        "profiles": {"one": {"enabled": ["whole", "some"]}, "two": {"disabled": ["whole"]}},
    }
    config = read(tmp_path, root)
    scopes = Scopes(config, Policy.__new__(Policy))
    offers = Offers(
        Offer(key, ({"uri": "file:///same"}, {"uri": f"file:///{key}"}), (), ({"name": "p"},))
        for key in ("alpha", "beta")
    )
    one, two = scopes.offers(offers, ("one",)), scopes.offers(offers, ("two",))
    assert [r["uri"] for r in one.resources] == ["file:///same", "file:///alpha"]
    assert [r["uri"] for r in two.resources] == ["file:///same", "file:///beta"], "no prefix tells of the other"
    assert one.owner("file:///beta") is None and one.prompt("beta__p") is None
    assert two.owner("file:///same") == ("beta", "file:///same")
    assert two.owner("narrow-waist:alpha/file:///same") is None


@pytest.mark.parametrize(
    ("root", "says"),
    [
        ({"toolsets": {"a": {"server": ["alpha"]}}}, "did you mean 'servers'"),
        ({"toolsets": {"a": {"servers": ["alfa"]}}}, "did you mean 'alpha'"),
        ({"toolsets": {"a": {"tools": ["get_page"]}}}, "expected server/tool"),
        ({"profiles": {"p": {"enabled": ["missing"]}}}, "no toolset 'missing'"),
        ({"profiles": {"p": {"readonly": True}}}, "did you mean 'read_only'"),
        ({"profiles": {"p/q": {}}}, "letters, digits"),
        ({"profiles": {"p": {"read_only": True, "policy": {"write": "allow"}}}}, "read_only"),
        ({"profiles": {"p": {"policy": {"write": "perhaps"}}}}, "allow, ask, deny"),
        ({"guard": {"locks": "strict"}}, "did you mean 'lock'"),
        ({"guard": {"lock": "very"}}, "off, warn, strict"),
        ({"guard": {"risk": {"read": ["alfa/*"]}}}, "did you mean 'alpha'"),
        ({"guard": {"audit": {"files": "x"}}}, "did you mean 'file'"),
    ],
)
@pytest.mark.parametrize("name", ["upstreams.yaml", "mcp.json"])
def test_a_slip_in_what_protects_is_an_error(tmp_path: Path, name: str, root: dict[str, Any], says: str) -> None:
    key = "servers" if name.endswith("yaml") else "mcpServers"
    file = tmp_path / name
    file.write_text(json.dumps({key: {"alpha": {"command": "x"}}, **root}), encoding="utf-8")
    with pytest.raises(ConfigError, match=str(tmp_path)) as caught:
        load(file, {})
    assert says in str(caught.value)
