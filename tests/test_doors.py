"""No rule lives in one door only: each case goes through four ways in, in both eras, and the answers must be the same.

`stdio-door` and `http-door` answer a plain `tools/call` before the SDK sees it; `stdio-sdk` and `http-sdk` are the same
proxy without. `short` says which of the doors is expected to take the case: else a case could be compared with itself.
"""

import asyncio
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import anyio.lowlevel
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from doors import MODERN, OLD, PREFIX, Answer, Front, House, house, server

Message = dict[str, Any]
Params = dict[str, Any]
ANY: Message = {"type": "object"}
ADD: Message = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
DONE: Message = {"result": {"content": [{"type": "text", "text": "done"}]}}
ANSWERS: dict[str, Message] = {
    "add": DONE,
    "pinned": DONE,
    "secret": DONE,
    "rich": {
        "result": {
            "content": [
                {"type": "text", "text": "é \u2028", "annotations": {"priority": 1.5}, "x": None},
                {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
                {"type": "video", "data": "AAAA"},
            ],
            "structuredContent": {"big": 2**63 + 1, "float": 1.0, "z": [1, {"a": "ü"}], "b": True, "a": False},
            "_meta": {"own": {"deep": None}},
            "isError": True,
            "unknown": {"field": [1.0, None]},
        }
    },
    "structured_only": {"result": {"structuredContent": {"rows": [1, 2]}, "content": []}},
    "structured_list": {"result": {"structuredContent": [1, 2], "content": []}},
    "no_content": {"result": {}},
    "bad_block": {"result": {"content": [{"type": "text"}, "bare", {"type": "text", "text": "last"}]}},
    "rpc_error": {"error": {"code": -32011, "message": "quota é used up", "data": {"retry": 2**53 + 1, "n": None}}},
    "no_data": {"error": {"code": -32602, "message": "no"}},
    "login": {"error": {"code": -32042, "message": "open this page", "data": {"elicitations": [{"url": "https://x"}]}}},
    "result_type": {"result": {"resultType": "complete", "content": [{"type": "text", "text": "ok"}]}},
    "stamped": {"result": {"content": [], "_meta": {f"{PREFIX}serverInfo": {"name": "theirs", "version": "9"}}}},
    "no_numbers": {"result": {"content": [], "structuredContent": {"n": math.nan, "i": [math.inf, -math.inf]}}},
    "question": {"result": {"resultType": "input_required", "inputRequests": {"a": {"method": "elicitation/create"}}}},
}
RESULTS = tuple(name for name in ANSWERS if name != "add")
BUILT_IN = ("arguments", "count", "wait")


def tools(names: tuple[str, ...], **schemas: Message) -> list[Message]:
    return [{"name": n, "description": f"Test {n}", "inputSchema": schemas.get(n, ANY)} for n in names]


@dataclass(frozen=True)
class Case:
    """One frame and what its answer must be."""

    name: str
    expect: Callable[[Answer], object]
    """Raises, or gives something false, where the answer is wrong."""
    params: Params | None = None
    frame: Callable[[Front], bytes] | None = None
    """The whole frame, where `params` cannot say it."""
    short: tuple[str, ...] = ("stdio", "http")
    """The transports whose door takes it."""
    eras: tuple[str, ...] = (OLD, MODERN)
    fenced: bool = False
    """Whether it may be no request at all, so that nothing answers it."""
    heal: str = ""
    """A tool that is called in between, so that five failures in a row do not stop the calls to its server."""
    alike: bool = True
    """Whether stdio and HTTP answer alike too, and not only each like its own SDK way."""

    def __str__(self) -> str:
        return self.name


def result(answer: Answer) -> Message:
    assert answer.final is not None and "result" in answer.final, answer
    return answer.final["result"]


def text(answer: Answer) -> str:
    return "\n".join(block.get("text", "") for block in result(answer)["content"])


def ok(said: str = "done") -> Callable[[Answer], object]:
    return lambda answer: not result(answer).get("isError") and said in text(answer)


def refused(*said: str) -> Callable[[Answer], object]:
    return lambda answer: result(answer).get("isError") is True and all(each in text(answer) for each in said)


def error(code: int) -> Callable[[Answer], object]:
    return lambda answer: answer.final is not None and answer.final["error"]["code"] == code


def rejected(answer: Answer) -> object:
    """An error of the protocol, or of HTTP."""
    return answer.status >= 400 or (answer.final is not None and "error" in answer.final)


def given(arguments: Any) -> Callable[[Answer], object]:
    """The upstream got exactly these arguments: equality knows neither the order of keys nor 1 from 1.0."""
    return lambda answer: json.dumps(json.loads(text(answer))["params"].get("arguments")) == json.dumps(arguments)


def meta(expected: Message) -> Callable[[Answer], object]:
    return lambda answer: json.loads(text(answer))["params"].get("_meta", {}) == expected


def through(name: str, arguments: Any = None, **more: Any) -> Params:
    inner = {"name": name} if arguments is None else {"name": name, "arguments": arguments}
    return {"name": "tool_call", "arguments": inner, **more}


def direct(name: str, arguments: Any = None, **more: Any) -> Params:
    return {"name": name, **({} if arguments is None else {"arguments": arguments}), **more}


def edited(old: bytes, new: bytes, params: Params | None = None) -> Callable[[Front], bytes]:
    """A plain call with some of its bytes replaced."""

    def frame(front: Front) -> bytes:
        plain = front.frame(7, params or through("raw__arguments", {"a": "VALUE"}))
        assert old in plain
        return plain.replace(old, new)

    return frame


ODD_ARGUMENTS: Message = {
    "z": 2**53 + 1, "a": 1.0, "null": None, "é漢": "\u2028😀", "m": {"b": [1, {"y": 1e-7, "x": False}]}, "": "",
    "big": 2**80, "negative": -(2**63), "text": "\u0000\t\"\\/",
}  # fmt: skip
WRAPPED_TWICE = {"name": "tool_call", "arguments": {"name": "raw__add", "arguments": {"n": 1}}}
SPELLINGS = ("raw__add", "raw.add", "raw/add", "raw:add", "mcp__raw__add", "mcp_raw_add")
NOTHING: tuple[str, ...] = ()

CASES = [
    # Names.
    *(Case(f"tool_call by {name}", ok(), through(name, {"n": 1})) for name in SPELLINGS),
    *(Case(f"direct by {name}", ok(), direct(name, {"n": 1})) for name in SPELLINGS),
    Case("unknown tool", refused("raw__nothing"), through("raw__nothing")),
    Case("unknown tool, direct", refused("nothing_like_it"), direct("nothing_like_it")),
    Case("near name", refused("raw__add"), through("raw__ad", {"n": 1})),
    Case("excluded tool", refused("excluded"), through("raw__excluded")),
    Case("denied tool", refused("secret"), through("raw__secret")),
    Case("denied tool, direct", refused("secret"), direct("raw__secret")),
    Case("eager tool", ok(), direct("raw__pinned", {"anything": 1})),
    Case("server that is not there", refused("down"), through("down__tool"), eras=(OLD,)),
    Case("bare name while a server is unknown", refused("raw__add"), through("add", {"n": 1})),
    # Arguments.
    Case("arguments as they were sent", given(ODD_ARGUMENTS), through("raw__arguments", ODD_ARGUMENTS)),
    Case("arguments as they were sent, direct", given(ODD_ARGUMENTS), direct("raw__arguments", ODD_ARGUMENTS)),
    Case("arguments as a JSON string", ok(), through("raw__add", '{"n": 1}')),
    Case("tool_call with a JSON string", ok(), direct("tool_call", '{"name": "raw__add", "arguments": {"n": 1}}'),
         short=("stdio", "http"), alike=False),
    Case("arguments beside the name", ok(), direct("tool_call", {"name": "raw__add", "n": 1})),
    Case("wrapped twice", ok(), direct("tool_call", WRAPPED_TWICE)),
    Case("missing argument", refused("n"), through("raw__add", {})),
    Case("wrong type of argument", refused("n"), through("raw__add", {"n": "one"})),
    Case("no arguments at all", refused("n"), through("raw__add")),
    Case("null arguments", refused("n"), direct("tool_call", {"name": "raw__add", "arguments": None})),
    Case("null arguments of the call", refused("name"), {"name": "tool_call", "arguments": None}),
    Case("null arguments, direct", given({}), {"name": "raw__arguments", "arguments": None}),
    Case("tool_call without a name", refused("name"), direct("tool_call", {"arguments": {}})),
    Case("tool_call with a number for a name", refused("name"), direct("tool_call", {"name": 7})),
    Case("tool_call with a list of arguments", refused("raw__add"), through("raw__add", [1])),
    Case("tool_call with text that is no JSON", refused("JSON"), through("raw__add", "{nonsense")),
    Case("list for arguments", lambda a: a.final is not None, direct("raw__add", [1])),
    # Search and describe.
    Case("search", ok("raw__add"), direct("tool_search", {"query": "add"})),
    Case("search for nothing", lambda a: "matches" in text(a), direct("tool_search", {"query": "zebra crossing"})),
    Case("search with nonsense", lambda a: result(a), direct("tool_search", {"limit": "many"})),
    Case("describe", ok("integer"), direct("tool_describe", {"name": "raw__add"})),
    Case("describe what is denied", lambda a: "inputSchema" not in text(a),
         direct("tool_describe", {"name": "secret"})),
    Case("search through tool_call", ok("raw__add"), through("tool_search", {"query": "add"})),
    # Results.
    *(Case(f"{name} through tool_call", lambda a: a.final, through(f"raw__{name}")) for name in RESULTS),
    *(Case(f"{name}, direct", lambda a: a.final, direct(f"raw__{name}")) for name in RESULTS),
    Case("rich result is whole", lambda a: result(a)["structuredContent"]["big"] == 2**63 + 1, through("raw__rich")),
    Case("error through tool_call is a result", refused("quota é used up", "-32011"), through("raw__rpc_error")),
    Case("error of a direct call is one", error(-32011), direct("raw__rpc_error")),
    Case("an error for the client itself", error(-32042), through("raw__login")),
    Case("malformed answer", refused("malformed"), through("bad__malformed"), heal="bad__fine"),
    Case("no resultType in the handshake era", lambda a: "resultType" not in result(a), through("raw__result_type"),
         eras=(OLD,)),
    Case("resultType and who answered", lambda a: result(a)["resultType"] == "complete"
         and result(a)["_meta"][f"{PREFIX}serverInfo"]["name"] == "narrow-waist", through("raw__add", {"n": 1}),
         eras=(MODERN,)),
    Case("the upstream's own stamp stays", lambda a: result(a)["_meta"][f"{PREFIX}serverInfo"]["name"] == "theirs",
         through("raw__stamped"), eras=(MODERN,)),
    Case("structured content that is no object", lambda a: "structuredContent" not in result(a),
         through("raw__structured_list"), eras=(OLD,)),
    Case("question to a stateless client", lambda a: result(a)["resultType"] == "input_required",
         through("raw__question"), eras=(MODERN,)),
    Case("a client that has not said it can be asked is not asked", lambda a: refused("input")(a) and not a.before,
         through("raw__question"), eras=(OLD,)),
    # `_meta`, progress, time.
    Case("meta travels on", meta({"traceparent": "00-abc", "own": {"n": None}}),
         through("raw__arguments", _meta={"traceparent": "00-abc", "own": {"n": None}})),
    Case("meta that is null", lambda a: a.final is not None, through("raw__arguments", _meta=None), short=NOTHING,
         eras=(OLD,), alike=False),
    Case("meta that is a list", lambda a: a.final is not None, through("raw__arguments", _meta=[1]), short=NOTHING,
         eras=(OLD,), alike=False),
    Case("progress", lambda a: [m["params"]["progress"] for m in a.before] == [1, 2, 3, 4, 5]
         and {m["params"]["progressToken"] for m in a.before} == {"t"} and a.before[0]["params"]["x-own"] == 1,
         through("raw__count", _meta={"progressToken": "t"}), short=("stdio",)),
    Case("progress, direct, under a number", lambda a: [m["params"]["progressToken"] for m in a.before] == [7] * 5,
         direct("raw__count", _meta={"progressToken": 7}), short=("stdio",)),
    Case("no token, no progress", lambda a: not a.before and "counted" in text(a), through("raw__count")),
    Case("time-out", refused("timeout", "may have run"), through("bad__wait"), heal="bad__fine"),
    # Frames.
    Case("name that is a number", rejected, {"name": 7}, short=NOTHING, alike=False),
    Case("no name", error(-32602), {"arguments": {}}, short=NOTHING, alike=False),
    Case("no params", rejected, frame=lambda f: b'{"jsonrpc":"2.0","id":7,"method":"tools/call"}', short=NOTHING,
         alike=False),
    Case("params that are a list", rejected, frame=edited(b'"params": {', b'"params": [1], "x": {'), short=NOTHING,
         alike=False),
    *(Case(f"id {ident!r}", lambda a, ident=ident: a.final is not None and a.final["id"] == ident
           and type(a.final["id"]) is type(ident), frame=edited(b'"id": 7', f'"id": {json.dumps(ident)}'.encode()))
      for ident in (0, -1, 2**53 + 1, "seven", "", "7", "é")),
    *(Case(f"id {ident}", lambda a: True, frame=edited(b'"id": 7', f'"id": {ident}'.encode()), short=NOTHING,
           alike=False, fenced=True)
      for ident in ("7.5", "true", "{}", "[7]")),
    Case("jsonrpc 1.0", rejected, frame=edited(b'"jsonrpc": "2.0"', b'"jsonrpc": "1.0"'), short=NOTHING, alike=False),
    Case("no jsonrpc", rejected, frame=edited(b'"jsonrpc": "2.0", ', b""), short=NOTHING, alike=False),
    Case("batch", lambda a: True, frame=lambda f: b"[" + f.frame(7, through("raw__add", {"n": 1})) + b"]",
         short=NOTHING, alike=False),
    Case("NaN", lambda a: True, frame=edited(b'"VALUE"', b"NaN"), short=NOTHING, alike=False),
    Case("Infinity", lambda a: True, frame=edited(b'"VALUE"', b"-Infinity"), short=NOTHING, alike=False),
    Case("invalid UTF-8", lambda a: True, frame=edited(b"VALUE", b"\xff\xfe"), short=NOTHING, alike=False),
    Case("lone surrogate", lambda a: True, frame=edited(b"VALUE", b"\\ud800"), short=NOTHING, alike=False),
    Case("surrogate pair as escapes", given({"a": "😀"}), frame=edited(b"VALUE", b"\\ud83d\\ude00")),
    Case("no JSON", rejected, frame=lambda f: b'{"method": "tools/call", ', short=NOTHING, alike=False),
    Case("nested too deeply", rejected, frame=edited(b'"VALUE"', b"[" * 100_000 + b"]" * 100_000), short=NOTHING,
         alike=False),
    Case("nested deeply", lambda a: result(a), frame=edited(b'"VALUE"', b"[" * 90 + b"]" * 90)),
    Case("number beyond any float", lambda a: True, frame=edited(b'"VALUE"', b"1e400"), alike=False),
    Case("number with many digits", lambda a: True, frame=edited(b'"VALUE"', b"9" * 300), alike=False),
    Case("duplicate keys", given({"a": 2}), frame=edited(b'"a": "VALUE"', b'"a": 1, "a": 2')),
    Case("duplicate params, the last counts", ok("counted"), frame=edited(
        b'"method": "tools/call"', b'"method": "tools/call", "params": {"name": "tool_call"}',
        through("raw__count")), alike=False),
    Case("unknown members", ok("counted"), frame=edited(b'"jsonrpc"', b'"x": 1, "jsonrpc"', through("raw__count"))),
    Case("unknown params", ok("counted"), {**through("raw__count"), "x": 1, "task": {"ttl": 1}}),
    Case("white space", ok("counted"), frame=lambda f: b" \t" + f.frame(7, through("raw__count")) + b" \r"),
    Case("byte order mark", lambda a: True, frame=lambda f: b"\xef\xbb\xbf" + f.frame(7, through("raw__count")),
         short=NOTHING, alike=False),
    Case("escaped method", ok("counted"), frame=edited(b"tools/call", b"tools\\/call", through("raw__count")),
         short=("http",), alike=False),
]  # fmt: skip


def normal(answer: Answer) -> str:
    """The answer as text, without what differs from call to call: ids of requests, of kept results, of approvals."""
    body = (answer.final or {}).get("result", (answer.final or {}).get("error"))
    shown = json.dumps([answer.status, [m["params"] for m in answer.before], body])
    shown = re.sub(r'\\"(id|progressToken)\\": ?\d+', r'\\"\1\\": 0', shown)
    shown = re.sub(r'"requestState": "[^"]+"', '"requestState": "STATE"', shown)
    shown = re.sub(r'\\+"id\\+": \\+"[^"\\]+\\+"', "KEPT", shown)
    return re.sub(r"next try in \d+ s|failed \d+ times", "RETRY", shown)


async def answers(there: House, case: Case, era: str) -> dict[str, Answer]:
    """Way in -> answer; fails where a door that should take the case did not, or the other way round."""
    found: dict[str, Answer] = {}
    label = "stateless" if era == MODERN else "handshake"
    for way in ("stdio-sdk", "stdio-door", "http-sdk", "http-door"):
        front, before = there.fronts[f"{way}-{label}"], there.short
        frame = case.frame(front) if case.frame is not None else front.frame(7, case.params or {})
        name = str((case.params or {"name": "tool_call"}).get("name", ""))
        found[way] = await front.send(frame, name=name, fenced=case.fenced)
        transport, _, door = way.partition("-")
        taken = there.short > before
        assert taken == (door == "door" and transport in case.short), f"{way}: taken by the door: {taken}"
        if case.heal:
            healed = await front.send(front.frame(8, through(case.heal)), name="tool_call")
            assert ok()(healed), healed
    return found


def compare(found: dict[str, Answer], case: Case) -> None:
    for answer in found.values():
        assert case.expect(answer), answer
    assert normal(found["stdio-door"]) == normal(found["stdio-sdk"])
    assert normal(found["http-door"]) == normal(found["http-sdk"])
    if case.alike:
        http, stdio = found["http-sdk"], found["stdio-sdk"]
        assert normal(replace(http, status=200)) == normal(stdio)


@pytest.fixture(scope="module")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal("asyncio") as made:
        yield made


@pytest.fixture(scope="module")
def plain(portal: BlockingPortal, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("doors")
    listed = tools((*BUILT_IN, *ANSWERS, "excluded"), add=ADD)
    raw = server(folder / "raw", listed, ANSWERS, deny=["secret"], tools={"exclude": ["excluded"]}, pinned=["pinned"])
    replies = {"fine": DONE, "malformed": {"result": [1]}}
    bad = server(folder / "bad", tools(("wait", *replies)), replies, timeout=0.2)
    config = {
        "servers": {"raw": raw, "bad": bad, "down": {"command": "no-such-command-anywhere"}},
        "first_list_wait": 0.1,
    }
    with portal.wrap_async_context_manager(house(folder, config)) as made:
        yield made


@pytest.mark.parametrize("era", [OLD, MODERN])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_call_is_answered_alike_through_every_door(
    portal: BlockingPortal, plain: House, case: Case, era: str
) -> None:
    if era in case.eras:
        compare(portal.call(answers, plain, case, era), case)


@pytest.mark.parametrize("way", ["stdio-sdk", "stdio-door", "http-sdk", "http-door"])
@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_a_cancel_reaches_the_upstream_through_every_door(
    portal: BlockingPortal, plain: House, way: str, era: str
) -> None:
    async def cancel() -> Answer:
        front, begun = plain.fronts[f"{way}-{era}"], asyncio.Event()
        before = waiting(plain)
        watch = asyncio.create_task(seen(lambda: waiting(plain) > before, begun))
        answer = await front.cancelled(4711, through("raw__wait"), begun)
        await watch
        own = {m["id"] for m in plain.ledger() if m.get("params", {}).get("name") == "wait"}
        told = asyncio.Event()
        async with asyncio.timeout(10):
            await seen(lambda: own <= cancelled(plain), told)
        return answer

    final = portal.call(cancel).final
    assert final is None or "error" in final, "a cancelled call has a result"


def waiting(there: House) -> int:
    return sum(m.get("params", {}).get("name") == "wait" for m in there.ledger())


def cancelled(there: House) -> set[object]:
    return {m["params"]["requestId"] for m in there.ledger() if m["method"] == "notifications/cancelled"}


async def seen(condition: Callable[[], bool], event: asyncio.Event) -> None:
    """Set the event once the condition holds; the ledger is a file, so it has to be looked at."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    event.set()


# Where something guards.

GUARDED = ("look", "save", "danger", "hidden", "long")
LONG: Message = {
    "result": {"content": [{"type": "text", "text": "0123456789" * 100}], "structuredContent": {"a": "b" * 900}}
}


@pytest.fixture(scope="module")
def guarded(portal: BlockingPortal, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("guarded")
    replies = dict.fromkeys(GUARDED, DONE) | {"long": LONG}
    raw = server(folder / "raw", tools(GUARDED), replies, max_result_chars=100)
    config = {
        "servers": {"raw": raw},
        "toolsets": {"inner": {"tools": ["raw/hidden"]}},
        "profiles": {"default": {"disabled": ["inner"], "policy": {"write": "ask", "destructive": "deny"}}},
        "guard": {
            "risk": {"read": ["raw/look", "raw/long"], "write": ["raw/save"], "destructive": ["raw/danger"]},
            "read_call": True,
            "audit": {"file": str(folder / "audit.jsonl"), "arguments": True},
        },
    }
    with portal.wrap_async_context_manager(house(folder, config)) as made:
        yield made


CAPABLE: Params = {f"{PREFIX}clientCapabilities": {"elicitation": {"form": {}}}}
GUARDED_CASES = [
    Case("bare name", ok(), through("look")),
    Case("bare name, direct", ok(), direct("look")),
    Case("what reads is allowed", ok(), through("raw__look")),
    Case("what reads, direct", ok(), direct("raw__look")),
    Case("what writes needs a person", refused("save"), through("raw__save", {"word": "now"})),
    Case("what writes, direct", refused("save"), direct("raw__save")),
    Case("a person can be asked", lambda a: result(a)["resultType"] == "input_required"
         and "now" in json.dumps(result(a)["inputRequests"]), through("raw__save", {"word": "now"}, _meta=CAPABLE),
         eras=(MODERN,), short=("stdio",)),
    Case("what destroys is not there", refused("danger"), through("raw__danger")),
    Case("what destroys is not there, direct", refused("danger"), direct("raw__danger")),
    Case("out of scope", refused("hidden"), through("raw__hidden")),
    Case("out of scope, direct", refused("hidden"), direct("raw__hidden")),
    Case("out of scope, described", lambda a: "inputSchema" not in text(a),
         direct("tool_describe", {"name": "hidden"})),
    Case("out of scope, searched", lambda a: "raw__hidden" not in text(a), direct("tool_search", {"query": "hidden"})),
    Case("read-only call of what reads", ok(), {**through("raw__look"), "name": "tool_call_readonly"}),
    Case("read-only call of what writes", refused("raw__save"), {**through("raw__save"), "name": "tool_call_readonly"}),
    Case("long result", lambda a: "900 of 1,000 characters" in text(a) and "structuredContent" not in result(a),
         through("raw__long")),
    Case("long result, direct", lambda a: "900 of 1,000 characters" in text(a), direct("raw__long")),
    Case("reading on in nothing", refused("no kept result"), through("narrow_waist__read_result", {"id": "nothing"})),
]  # fmt: skip


@pytest.mark.parametrize("era", [OLD, MODERN])
@pytest.mark.parametrize("case", GUARDED_CASES, ids=str)
def test_what_guards_a_call_guards_every_door(portal: BlockingPortal, guarded: House, case: Case, era: str) -> None:
    if era not in case.eras:
        return
    ledger, audit = len(guarded.ledger()), len(audited(guarded))
    compare(portal.call(answers, guarded, case, era), case)
    portal.call(anyio.lowlevel.checkpoint)  # lines follow the answers in the next turn
    calls = [m["params"] for m in guarded.ledger()[ledger:] if m.get("method") == "tools/call"]
    assert len(calls) in (0, 4) and all(call == calls[0] for call in calls), "one door sent what another did not"
    lines = audited(guarded)[audit:]
    assert len(lines) in (0, 4) and all(line == lines[0] for line in lines), "the doors are audited differently"
    assert lines or case.params is None or str(case.params["name"]) in ("tool_search", "tool_describe")


def audited(there: House) -> list[Message]:
    path = there.folder / "audit.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [{k: v for k, v in json.loads(line).items() if k not in ("time", "ms")} for line in lines]


# The comparison itself.


def test_a_door_that_answers_otherwise_is_noticed(portal: BlockingPortal, plain: House) -> None:
    case = next(c for c in CASES if c.name == "structured_list through tool_call")
    found = portal.call(answers, plain, case, OLD)
    compare(found, case)
    for way in ("stdio-door", "http-door"):
        odd = json.loads(json.dumps(found[way].final))
        odd["result"]["structuredContent"] = [1, 2]
        with pytest.raises(AssertionError):
            compare({**found, way: replace(found[way], final=odd)}, case)
