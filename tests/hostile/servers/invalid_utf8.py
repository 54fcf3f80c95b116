"""Upstream that emits bytes which are not UTF-8 on stdout (cp1252 output, a lone 0xff log line).

Seen in: MemPalace/mempalace#503/#1241, MoonshotAI/kimi-code#886 and the Windows code-page family.
Trap (measured): mcp 2.3.0's StdioServerParameters.encoding_error_handler defaults to "strict". One bad byte stops the
stdout reader, the session is never told, so that call AND EVERY LATER ONE wait for ever; UnicodeDecodeError only
appears (in an ExceptionGroup) when the client is closed. encoding_error_handler="replace" cures it (measured).
Right behaviour: the session survives; `bad_text` returns text with U+FFFD (or a clear tool error for that
one call); `good` works afterwards; other upstreams never notice.
"""

from _raw import NoReply, Server, serve, text, tool


def call(name, args, params, peer):
    if name == "bad_text":
        peer.raw(b"caf\xe9 na\xefve \xff\xfe log line\n")
        raise_id = CURRENT["id"]
        peer.raw(
            b'{"jsonrpc":"2.0","id":' + raise_id + b',"result":{"content":[{"type":"text","text":"caf\xe9 \xff"}]}}\n'
        )
        raise NoReply
    return text("good")


CURRENT = {"id": b"0"}


def on_line(line):
    import json

    m = json.loads(line)
    if "id" in m:
        CURRENT["id"] = json.dumps(m["id"]).encode()


serve(
    Server([tool("bad_text", "Result holds invalid UTF-8."), tool("good", "Fine.")], call, name="latin1"),
    on_line=on_line,
)
