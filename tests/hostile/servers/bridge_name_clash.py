"""Upstream whose tools are called tool_search, tool_describe and tool_call, plus the same name twice.

Seen in: NousResearch/hermes-agent#110442 (name `tool_call` itself confuses qwen), Lexus2016/hermes-agent-evolution#1786
(bridge self-nesting = 14 % of bridge failures), cajasmota/grafel#62, proxies chained behind proxies.
Right behaviour: the proxy's own three tools win at top level; the upstream's are reachable as
tool_call(name="<server>__tool_search", ...) and answer "UPSTREAM tool_search". A bare tool_call(name="tool_call",
arguments={name, arguments}) is unwrapped once or refused with a one-line hint, never recursed. Of the two
`dup` tools (same server, same name) one is kept deterministically with a warning; the listing shows it once.
"""

from _raw import Server, serve, text, tool

Q = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
TOOLS = [
    tool("tool_search", "Upstream search, not the proxy's.", Q),
    tool("tool_describe", "Upstream describe."),
    tool("tool_call", "Upstream call."),
    tool("dup", "First dup.", Q),
    tool("dup", "Second dup.", {"type": "object", "properties": {"other": {"type": "integer"}}}),
]
serve(Server(TOOLS, lambda n, a, p, q: text(f"UPSTREAM {n}"), name="clash"))
