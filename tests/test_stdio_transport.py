"""Lines and stderr of a stdio server: what is read leniently, what is kept, what is said."""

import json

import pytest

from proxy.upstream.stdio import STDERR_LINES, StderrTail, decode, embedded, encode


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b'{"a": 1}', {"a": 1}),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b' {"a": 1} \r', {"a": 1}),
        (b'{"a": "caf\xe9"}', {"a": "caf\ufffd"}),
        (b'{"a": "\\ud83d"}', {"a": "\ufffd"}),
        ('{"a": "\\ud83d\\ude00 \u2028"}'.encode(), {"a": "\U0001f600 \u2028"}),
    ],
    ids=["plain", "bom", "crlf", "latin1", "half a pair", "pair"],
)
def test_a_line_is_read_leniently(line: bytes, value: object) -> None:
    assert decode(line) == value


def test_what_is_sent_is_one_line_of_utf8() -> None:
    message = {"a": "line\nbreak \u2028 ü \ud83d"}
    line = encode(message)
    assert b"\n" not in line
    assert json.loads(line.decode()) == message


def tail(mask: str = "") -> StderrTail:
    return StderrTail("s", lambda text: text.replace(mask, "***") if mask else text)


def test_lines_of_stderr_are_put_together_masked_and_bounded() -> None:
    stderr = tail("secret")
    stderr.feed(b"half a li")
    stderr.feed(b"ne with secret\nnext\n")
    assert list(stderr.lines) == ["half a line with ***", "next"]
    stderr.feed(b"x" * 5_000_000)
    stderr.feed(b"y\n" * 1_000_000)
    assert len(stderr.lines) == STDERR_LINES and all(len(line) <= 500 for line in stderr.lines)


def test_last_words_are_said_once_and_include_a_line_without_an_end() -> None:
    stderr = tail()
    assert stderr.after("exited") == "exited"
    stderr.feed(b"Traceback\nKeyError: 'TOKEN'")
    said = stderr.after("exited")
    assert said == "exited; its last words: Traceback | KeyError: 'TOKEN'"
    assert stderr.after(said) == said


@pytest.mark.parametrize(
    "line",
    [b'DEBUG -> {"jsonrpc": "2.0", "id": 1, "result": {}}', b'{"jsonrpc": "2.0", "id": 1, "result": {}} <- sent'],
)
def test_an_answer_that_shares_its_line_is_found(line: bytes) -> None:
    assert embedded(line) == {"jsonrpc": "2.0", "id": 1, "result": {}}


@pytest.mark.parametrize(
    "line",
    [b"no json", b'{"jsonrpc": "2.0", "id": 1, "resu', b'<- {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}',
     b'"jsonrpc" alone', b'level {"a": 1} "jsonrpc"'],
)  # fmt: skip
def test_what_a_server_logs_of_our_own_requests_is_no_answer(line: bytes) -> None:
    assert embedded(line) is None
