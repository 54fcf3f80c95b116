"""A long list that comes as it came at the last start is recalled, and any other byte makes it another list."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio.lowlevel
import pytest

from proxy.app import App
from proxy.config.settings import ServerConfig, Settings
from proxy.guard.lock import tool_hash
from proxy.upstream import recall as module
from proxy.upstream.lists import Lists
from proxy.upstream.recall import LONG, Recall
from proxy.upstream.session import Session
from proxy.upstream.snapshot import Snapshot
from proxy.upstream.web import parsed
from proxy.wire import decode

Json = dict[str, Any]
TEXT = "x" * LONG
TOOLS: list[Json] = [{"name": "short"}, {"name": "long", "description": TEXT}]
MODERN = "2026-07-28"
CONFIG = ServerConfig("s", "stdio", launch_hash="a" * 64)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The long messages that were parsed."""
    seen: list[bytes] = []

    def read_too(data: bytes) -> Any:
        if len(data) >= LONG:
            seen.append(data)
        return decode(data)

    monkeypatch.setattr(module, "decode", read_too)
    return seen


class Server:
    """A server that lists its tools in pages; the bytes of its answers are made of the values by its transport."""

    takes_headers = False
    server = "s"

    def __init__(self, *pages: list[Any], **more: Any) -> None:
        self.pages, self.more, self.ids = pages, more, 0
        self.decode: Any = json.loads

    async def request(self, method: str, params: Mapping[str, Any], **_: Any) -> Json:
        self.ids += 1
        await anyio.lowlevel.checkpoint()
        number = int(params.get("cursor", 0))
        result: Json = {**self.more, "tools": self.pages[number]}
        if number + 1 < len(self.pages):
            result["nextCursor"] = str(number + 1)
        message: Json = self.decode(json.dumps({"jsonrpc": "2.0", "id": self.ids, "result": result}).encode())
        assert message["id"] == self.ids
        return message["result"]


async def start(folder: Path, *pages: list[Any], reads: int = 1, **more: Any) -> Lists:
    """The lists of a server after a start of the proxy."""
    lists = Lists(CONFIG, Snapshot(folder), lambda: None)
    session = Session(Server(*pages, **more), "2025-11-25")  # type: ignore[arg-type]
    for _ in range(reads):
        await lists.read(session)
    return lists


async def test_what_comes_as_it_came_is_not_parsed_again_and_is_the_same(tmp_path: Path, read: list[bytes]) -> None:
    first = await start(tmp_path, TOOLS, ttlMs=5, _meta={"v": 1.0})
    assert first.found is not None and first.found.tools == TOOLS and len(read) == 1
    for _ in range(2):
        again = await start(tmp_path, TOOLS, ttlMs=5, _meta={"v": 1.0})
        assert again.found == first.found and again.part.hash == first.part.hash
    assert len(read) == 1, "the second and third start have recalled it"


async def test_what_stood_beside_the_tools_is_recalled_too_and_nothing_is_kept_of_later_answers(
    tmp_path: Path, read: list[bytes]
) -> None:
    for _ in range(2):
        lists, session = Lists(CONFIG, Snapshot(tmp_path), lambda: None), Session(Server(TOOLS, ttlMs=5), MODERN)  # type: ignore[arg-type]
        await lists.read(session)
        assert session.ttl == 0.005
        assert session.peer.decode is decode, "each long answer of its life would be held"
    assert len(read) == 1


@pytest.mark.parametrize(
    ("pages", "more"),
    [
        ([[{"name": "short"}, {"name": "long", "description": TEXT[1:] + "y"}]], {}),
        ([[{"name": "long", "description": TEXT}, {"name": "short"}]], {}),
        ([TOOLS], {"ttlMs": 9}),
        ([TOOLS, [{"name": "other", "description": TEXT}]], {}),
    ],
    ids=["another letter", "another order", "another field", "one more page"],
)
async def test_any_other_byte_makes_it_another_list(
    tmp_path: Path, read: list[bytes], pages: list[list[Any]], more: Json
) -> None:
    """A server that changes a description after it was approved must not get away with it (a rug pull)."""
    await start(tmp_path, TOOLS)
    read.clear()
    changed = await start(tmp_path, *pages, **more)
    assert changed.found is not None and changed.found.tools == [tool for page in pages for tool in page]
    assert read, "it was parsed"


@pytest.mark.parametrize(
    "pages",
    [[TOOLS, TOOLS[:1]], [[*TOOLS, {"no": "name"}]], [[{"name": "short"}]]],
    ids=["pages", "an odd entry", "short"],
)
async def test_a_list_that_is_not_one_whole_long_answer_is_parsed_each_time(
    tmp_path: Path, read: list[bytes], pages: list[list[Any]]
) -> None:
    lists = [await start(tmp_path, *pages) for _ in range(2)]
    assert lists[0].found == lists[1].found and lists[0].warnings == lists[1].warnings
    assert len(read) == (0 if len(pages[0]) == 1 else 2)


async def test_what_a_session_reads_later_does_not_take_the_place_of_its_start(
    tmp_path: Path, read: list[bytes]
) -> None:
    await start(tmp_path, TOOLS, reads=3)
    read.clear()
    await start(tmp_path, TOOLS)
    assert not read


async def test_other_bytes_for_the_same_list_are_known_from_then_on(tmp_path: Path, read: list[bytes]) -> None:
    """The era is asked for only once, and so the ids of the second start are others."""
    for known in (TOOLS, [dict(reversed(tool.items())) for tool in TOOLS]):
        read.clear()
        await start(tmp_path, known)
        assert len(read) == 1
        await start(tmp_path, known)
        assert len(read) == 1


@pytest.mark.parametrize(
    "value",
    ["1e999", "NaN", "-Infinity", "-0.0", "1.0", "1", "true", "1e16", "5e-324", "1" * 30, '"\\ud800"', '"\\u0000"'],
)
async def test_what_json_cannot_write_is_the_same_at_each_start(tmp_path: Path, value: str) -> None:
    """The lock's hashes are of what came: infinity is null in a file, and the tool would be another one."""
    listed: list[Json] = [{"name": "t", "inputSchema": {"default": 0}}, *TOOLS]
    given = json.loads(value)
    hashes: set[str] = set()
    for _ in range(3):
        lists = await start(tmp_path, [{**listed[0], "inputSchema": {"default": given}}, *TOOLS])
        assert lists.found is not None
        hashes.add(tool_hash(lists.found.tools[0]))
    assert len(hashes) == 1


@pytest.mark.parametrize(("old", "new"), [(1, True), (True, 1), (1, 1.0), (0, False)])
@pytest.mark.parametrize("text", [TEXT, ""], ids=["long", "short"])
async def test_a_change_that_python_calls_equal_is_one(tmp_path: Path, old: Any, new: Any, text: str) -> None:
    """`destructiveHint: 1` says nothing, and `true` a lot."""

    def tools(value: Any) -> list[Json]:
        return [{"name": "t", "description": text, "annotations": {"destructiveHint": value}}]

    await start(tmp_path, tools(old))
    for _ in range(2):
        lists = await start(tmp_path, tools(new))
        assert lists.found is not None
        assert [repr(t["annotations"]) for t in lists.found.tools] == [repr({"destructiveHint": new})]
        assert repr(lists.part.tools[0].annotations["destructiveHint"]) == repr(new)


@pytest.mark.parametrize(
    "damage",
    [
        lambda kept: kept["tools"].pop(),
        lambda kept: kept["tools"].reverse(),
        lambda kept: kept["answer"].pop("seal"),
        lambda kept: kept["answer"].update(digest=5),
        lambda kept: kept["answer"].update(frame=[]),
        lambda kept: kept["answer"]["frame"].update(id=99),
        lambda kept: kept["answer"]["frame"].update(method="x"),
        lambda kept: kept["answer"]["frame"].update(result=None),
        lambda kept: kept["answer"]["frame"]["result"].update(nextCursor="0"),
    ],
    ids=["cut", "order", "no seal", "digest", "frame", "id", "method", "result", "cursor"],
)
async def test_a_damaged_snapshot_heals(tmp_path: Path, damage: Callable[[Json], object]) -> None:
    await start(tmp_path, TOOLS)
    file = tmp_path / next(name for name in os.listdir(tmp_path) if name.endswith(".json"))
    kept = json.loads(file.read_text(encoding="utf-8"))
    damage(kept)
    file.write_text(json.dumps(kept), encoding="utf-8")
    lists = await start(tmp_path, TOOLS)
    assert lists.found is not None and lists.found.tools == TOOLS


def test_what_is_no_answer_passes_through() -> None:
    recall = Recall()
    for value in ([1] * LONG, "a" * LONG, {"id": 1, "error": {"message": TEXT}}, {"result": [TEXT]}, {"result": None}):
        assert recall.decode(json.dumps(value).encode()) == value
    with pytest.raises(ValueError, match="line 1"):
        recall.decode(b"{" * LONG)
    assert recall.answer([]) is None and recall.answer([{"name": "a"}]) is None


SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = {"tools": [{"name": "long", "description": "x" * int(sys.argv[1])}]}
        if message["method"] == "initialize":
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}}
        answer = {"result": result} if message["method"] in ("initialize", "tools/list") else {"error": {"code": -32601,
            "message": "no"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


async def test_a_process_is_recalled_once_its_era_is_known(tmp_path: Path, read: list[bytes]) -> None:
    command = ServerConfig("s", "stdio", command=sys.executable, args=("-c", SERVER, str(LONG)), launch_hash="b" * 64)
    counts: list[int] = []
    for _ in range(3):
        app = App(Settings(servers=(command,)), {"NARROW_WAIST_CACHE": str(tmp_path), "PATH": "/usr/bin:/bin"})
        async with app.running():
            await app.fleet.connections["s"].ready()
            assert [t.description for t in app.catalog.tools] == ["x" * LONG]
        counts.append(len(read))
    assert counts == [1, 2, 2]


def test_what_comes_over_http_is_read_by_the_peer_too() -> None:
    class Deaf:
        def decode(self, data: bytes) -> Any:
            raise RecursionError if data == b"deep" else ValueError

    class Reads:
        decode = staticmethod(json.loads)

    assert parsed(b"[1]", Reads()) == [1]  # type: ignore[arg-type]
    assert parsed(b"[1]", Deaf()) is None and parsed(b"deep", Deaf()) is None  # type: ignore[arg-type]
