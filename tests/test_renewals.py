"""A list that changes for ever takes no more memory than one that has changed a few times (found by a soak: 0.5 MB for
each renewal of 1,500 tools)."""

import gc
import sys
from collections import Counter as Tally
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from proxy.app import App
from proxy.catalog import Catalog, Server
from proxy.config import load
from proxy.counter import Counter
from proxy.listing.texts import ServerTexts
from proxy.memory import settle
from proxy.search import Index
from proxy.search.fields import ToolWords
from proxy.tool import Tool
from proxy.upstream.peer import Peer
from tests.guarded_house import write

TOOLS = 300


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


class Changing:
    """A session with a server whose tools are all other ones each time they are read."""

    def __init__(self) -> None:
        self.modern, self.info, self.instructions, self.ttl = False, dict[str, Any](), None, 0.0
        self.capabilities: dict[str, Any] = {"tools": {}}
        self.peer = Peer("s", lambda *_: None)
        self.reads = 0

    async def request(self, method: str, params: Mapping[str, Any] | None = None, **_: Any) -> dict[str, Any]:
        self.reads += 1
        schema = {"type": "object", "properties": {f"of_{self.reads}": {"type": "string", "description": "a word"}}}
        return {
            "tools": [
                {"name": f"t{n}", "description": f"Does thing {n} of {self.reads}", "inputSchema": schema}
                for n in range(TOOLS)
            ]
        }


def alive() -> tuple[Mapping[str, int], int]:
    """How many objects of a catalog there are, and memory blocks of any kind."""
    gc.unfreeze()
    gc.collect()
    kinds = (Tool, ToolWords, ServerTexts, Server, Catalog, Index)
    return Tally(type(each).__name__ for each in gc.get_objects() if isinstance(each, kinds)), sys.getallocatedblocks()


@pytest.mark.parametrize("tokenizer", ["o200k", "estimate"])
async def test_what_is_kept_does_not_grow_with_the_number_of_renewals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: str
) -> None:
    async def started(_: Counter) -> None:
        pass

    async def counted(_: Counter, lines: Sequence[str]) -> list[int]:
        return [len(line) // 4 for line in lines]

    monkeypatch.setattr(Counter, "start", started)
    monkeypatch.setattr(Counter, "count", counted)
    path = write(tmp_path / "u.json", {"s": {"command": "none"}}, tool_search={"tokenizer": tokenizer})
    environ = {"NARROW_WAIST_CACHE": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    app = App(load(path, environ, home=tmp_path), environ, clients=1, profiles=())
    monkeypatch.setattr(app.fleet, "run", anyio.sleep_forever)
    session = Changing()

    async def renewed(times: int) -> None:
        for _ in range(times):
            await app.fleet.connections["s"].lists.read(session)  # pyright: ignore[reportArgumentType]
            await app.counted()
            assert len(await app.tools("claude-code")) == 3
            assert (await app.index()).search(f"of {session.reads}", 1).matched == TOOLS
            settle()  # as after each change of a large catalog

    with anyio.fail_after(30):
        async with app.running():
            await renewed(5)
            objects, blocks = alive()
            await renewed(15)
            objects_later, blocks_later = alive()
    assert objects_later == objects
    assert blocks_later - blocks < 10 * TOOLS, "half a line for each tool of each renewal would be so much"
