"""What goes over the wire is JSON that every client reads, whatever a server has sent."""

import json
import math

import mcp_types as types
import pytest

from proxy.wire import decode, encode, encode_answer, writable


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def strictly(line: bytes) -> object:
    """As a client of another language reads it."""

    def refuse(token: str) -> float:
        raise AssertionError(f"{token} is not JSON")

    return json.loads(line.decode(), parse_constant=refuse)


@pytest.mark.parametrize("number", [b"1e400", b"-1e400", b"NaN", b"Infinity", b"-Infinity"])
@pytest.mark.parametrize("beside", [b'"x"', nested(300)], ids=["flat", "deep"])
def test_a_number_that_json_does_not_have_is_null(number: bytes, beside: bytes) -> None:
    """JavaScript's parser refuses the whole line, and the request would wait for ever."""
    line = b'{"n":' + number + b',"text":"NaN, [Infinity]","beside":' + beside + b"}"
    assert strictly(encode(decode(line))) == {"n": None, "text": "NaN, [Infinity]", "beside": json.loads(beside)}


@pytest.mark.parametrize("number", ["1.0", "-0.0", "1e+16", "0.1", "5e-324", "123456789012345678901234567890", "1e-7"])
def test_a_number_arrives_as_it_was(number: str) -> None:
    sent = json.loads(number)
    line = strictly(encode(decode(b'{"n":%s}' % number.encode())))
    assert isinstance(line, dict)
    arrived = line["n"]
    assert type(arrived) is type(sent) and arrived == sent and math.copysign(1, arrived) == math.copysign(1, sent)


def test_what_is_nested_deeper_than_one_library_can_still_travels() -> None:
    line = b'{"deep":' + nested(700) + b"}"
    assert encode(decode(line)) == line


def test_an_answer_that_cannot_be_written_is_an_error_that_is_written() -> None:
    """There is less stack left where an answer is written than where it was read: its client would wait for ever."""
    deep: object = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(RecursionError):
        encode({"id": 7, "result": deep})
    answer = strictly(encode_answer({"jsonrpc": "2.0", "id": 7, "result": deep}))
    error = {"code": -32603, "message": "the answer is nested too deeply"}
    assert answer == {"jsonrpc": "2.0", "id": 7, "error": error}
    while isinstance(deep, list) and deep:  # freeing it at once would need as much stack
        deep = deep.pop()


@pytest.mark.parametrize(
    ("levels", "room", "can"), [(250, 0, True), (260, 0, False), (200, 50, True), (200, 60, False)]
)
def test_what_the_sdk_can_write_is_known_beforehand(levels: int, room: int, can: bool) -> None:
    """It ends an event stream without an answer where it cannot, and gives an error for a whole list."""
    assert writable(json.loads(nested(levels)), room) is can
    message = types.JSONRPCResponse(jsonrpc="2.0", id=1, result={"x": json.loads(nested(levels + room - 2))})
    assert message.model_dump_json() if can else True
    assert writable("\ud800")
