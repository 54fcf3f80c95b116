"""The peer: one answer for one request, whatever a server sends besides."""

from collections.abc import Mapping
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from proxy.errors import RpcError, UpstreamFailure
from proxy.upstream.backlog import ROOM
from proxy.upstream.peer import MOST_PROGRESS, Peer

OK = {"content": [], "x": None}


class Wire:
    """A link that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.takes_headers = False

    def send(self, message: dict[str, Any], headers: Mapping[str, str] | None = None) -> None:
        self.sent.append(message)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def peer(wire: Wire) -> Peer:
    peer = Peer("s", lambda method, params: None)
    peer.attach(wire)
    return peer


async def answered(peer: Peer, *frames: object, **options: Any) -> dict[str, Any]:
    """The outcome of request number 1 when these frames come in while it waits."""
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:

            async def feed() -> None:
                while not peer.in_flight:
                    await anyio.lowlevel.checkpoint()
                for frame in frames:
                    peer.receive(frame)

            tasks.start_soon(feed)
            try:
                return await peer.request("tools/call", {"name": "t"}, **options)
            except (RpcError, UpstreamFailure) as error:
                failure = error
        raise failure


@pytest.mark.parametrize("ident", [1, "1", 1.0])
async def test_an_answer_is_known_by_its_id_in_any_spelling(peer: Peer, ident: object) -> None:
    assert await answered(peer, {"id": ident, "result": OK}) is OK


@pytest.mark.parametrize("frame", [{"id": 9}, {"id": None}, {"id": True}, {"id": "x"}, {"id": 1.5}, {"id": [1]}, {}])
async def test_answers_to_nobody_are_passed_over(peer: Peer, frame: dict[str, object]) -> None:
    assert await answered(peer, {**frame, "result": {"not": "ours"}}, {"id": 1, "result": OK}) is OK


async def test_only_the_first_answer_counts(peer: Peer) -> None:
    assert await answered(peer, {"id": 1, "result": OK}, {"id": 1, "error": {"code": 1, "message": "late"}}) is OK


@pytest.mark.parametrize("junk", [None, 42, "text", [], {}, [1, 2], {"level": "info"}])
async def test_what_is_not_json_rpc_is_said_to_be_not(peer: Peer, junk: object) -> None:
    assert peer.receive(junk) is False


async def test_a_batch_is_its_members(peer: Peer) -> None:
    assert await answered(peer, [{"method": "notifications/x"}, {"id": 1, "result": OK}]) is OK


async def test_an_error_arrives_whole(peer: Peer) -> None:
    with pytest.raises(RpcError) as raised:
        await answered(peer, {"id": 1, "error": {"code": -32000, "message": "no", "data": {"a": 1}}})
    assert (raised.value.code, raised.value.message, raised.value.data) == (-32000, "no", {"a": 1})


@pytest.mark.parametrize(
    "frame",
    [
        {"result": None},
        {"result": []},
        {"error": {"code": "E"}},
        {"error": "text"},
        {"error": {"code": True, "message": "x"}},
    ],
)
async def test_a_malformed_answer_fails_its_request_at_once(peer: Peer, frame: dict[str, object]) -> None:
    with pytest.raises(UpstreamFailure, match="malformed answer") as raised:
        await answered(peer, {"id": 1, **frame})
    assert raised.value.may_have_run


async def test_the_end_of_the_connection_fails_what_waits_and_the_first_reason_stays(peer: Peer) -> None:
    async with anyio.create_task_group() as tasks:
        reasons: list[str] = []

        async def ask() -> None:
            try:
                await peer.request("tools/call", {})
            except UpstreamFailure as failure:
                reasons.append(failure.reason)

        for _ in range(3):
            tasks.start_soon(ask)
        while peer.in_flight < 3:
            await anyio.lowlevel.checkpoint()
        peer.close("exited with code 7")
        peer.close("something later")
    assert reasons == ["exited with code 7"] * 3
    with pytest.raises(UpstreamFailure) as raised:
        await peer.request("tools/call", {})
    assert not raised.value.may_have_run and raised.value.reason == "exited with code 7"


async def test_a_time_out_is_told_to_the_server_and_frees_the_request(peer: Peer, wire: Wire) -> None:
    with pytest.raises(UpstreamFailure, match="no answer within"):
        await peer.request("tools/call", {}, timeout=0.01)
    assert wire.sent[-1]["method"] == "notifications/cancelled" and wire.sent[-1]["params"]["requestId"] == 1
    assert peer.in_flight == 0


async def test_initialize_is_never_cancelled(peer: Peer, wire: Wire) -> None:
    with pytest.raises(UpstreamFailure):
        await peer.request("initialize", {}, timeout=0.01, cancellable=False)
    assert [message["method"] for message in wire.sent] == ["initialize"]


async def test_all_progress_that_came_before_the_answer_is_passed_on_first(peer: Peer) -> None:
    seen: list[int] = []

    async def on_progress(params: Mapping[str, Any]) -> None:
        await anyio.lowlevel.checkpoint()
        seen.append(params["progress"])

    steps = [{"method": "notifications/progress", "params": {"progressToken": 1, "progress": n}} for n in range(20)]
    await answered(peer, *steps, {"id": 1, "result": OK}, on_progress=on_progress)
    assert seen == list(range(20))


async def test_a_server_that_asks_is_answered(peer: Peer, wire: Wire) -> None:
    peer.receive({"id": "a", "method": "ping"})
    peer.receive({"id": 7, "method": "roots/list"})
    assert wire.sent[0] == {"jsonrpc": "2.0", "id": "a", "result": {}}
    assert wire.sent[1]["id"] == 7 and wire.sent[1]["error"]["code"] == -32601


@pytest.mark.parametrize(
    "odd",
    [
        {"id": "9" * 5_000, "result": {}},
        {"id": 10**5_000, "result": {}},
        {"id": float("inf"), "result": {}},
        {"method": "notifications/progress", "params": {"progressToken": "9" * 5_000}},
        {"id": 10**5_000, "method": "roots/list"},
        [[[{"id": 1, "result": {}}]]],
        [],
    ],
)  # fmt: skip
async def test_what_is_odd_about_one_message_harms_no_other(peer: Peer, odd: object) -> None:
    """Over stdio the rest of what was read with it was lost, over HTTP the connection."""
    assert await answered(peer, odd, {"id": 1, "result": OK}) == OK


async def test_an_answer_that_is_a_number_of_very_many_digits_is_malformed(peer: Peer) -> None:
    with pytest.raises(UpstreamFailure, match="malformed answer: a number of too many digits"):
        await answered(peer, {"id": 1, "result": 10**5_000})


async def test_an_answer_does_not_wait_for_ever_for_a_client_that_reads_no_progress(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.upstream.peer.UNREAD", 0.0)

    async def unread(_: Mapping[str, Any]) -> None:
        await anyio.sleep_forever()

    step = {"method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}
    with anyio.fail_after(10):
        await answered(peer, step, step, {"id": 1, "result": OK}, on_progress=unread)


@pytest.mark.parametrize(("count", "text", "kept"), [(5_000, "", MOST_PROGRESS), (20, "x" * (ROOM // 4), 3)])
async def test_progress_that_nobody_takes_in_is_bounded_and_the_newest_stays(
    count: int, text: str, kept: int, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    """A thousand messages of 1 MB took 1 GB: their number is bounded, and their size; what is dropped is told once."""
    seen: list[int] = []
    flooded = anyio.Event()

    async def slow(params: Mapping[str, Any]) -> None:
        await flooded.wait()
        seen.append(params["progress"])

    async def flood() -> None:
        while not peer.in_flight:
            await anyio.lowlevel.checkpoint()
        for number in range(count):
            params = {"progressToken": 1, "progress": number, "message": text}
            peer.receive({"method": "notifications/progress", "params": params})
        peer.receive({"id": 1, "result": OK})
        flooded.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(flood)
        assert await peer.request("tools/call", {"name": "t"}, on_progress=slow) == OK
    assert len(seen) <= kept + 1 and seen[-1] == count - 1  # one was on its way before the flood
    assert caplog.text.count("more progress than its client reads") == 1


async def test_what_cannot_be_sent_any_more_is_told_with_the_reason_that_is_known_a_moment_later() -> None:
    """The input of a process that was killed is closed before its exit is reported."""

    class Gone(Wire):
        def send(self, message: dict[str, Any], headers: Mapping[str, str] | None = None) -> None:
            tasks.start_soon(told)
            raise BrokenPipeError("the input is closed")

    async def told() -> None:
        peer.close("the server's process was ended by SIGKILL")

    peer = Peer("s", lambda method, params: None)
    peer.attach(Gone())
    async with anyio.create_task_group() as tasks:
        with pytest.raises(UpstreamFailure) as caught:
            await peer.request("tools/call", {"name": "t"})
    assert caught.value.reason == "the server's process was ended by SIGKILL" and not caught.value.may_have_run
