"""An upstream without any SDK that offers everything there is, in one era of the protocol; stdio.

    python era_server.py ERA LEDGER

ERA: 2025-11-25 shakes hands, asks its client in the middle of a call and waits for the answer; 2026-07-28 answers
`input_required` and wants its `requestState` back. LEDGER gets one line of JSON for each message received.

Tools: `rich` answers with RICH, byte for byte; `count` reports progress 1 to 5; `wait` never answers; `refuse` answers
with ERROR; `ask` with `kind` elicitation, sampling or roots gives the client's answer back as JSON; `log` sends a log
message of each level in LEVELS; `hold` logs once, and answers when `release` is called; `touch` says that a resource
was updated. Resources, a template, prompts and completions speak for themselves.
"""

import json
import sys
from pathlib import Path
from typing import Any

MODERN = "2026-07-28"
Json = dict[str, Any]

RICH: Json = {
    "content": [
        {"type": "text", "text": "é 漢 \u2028", "annotations": {"priority": 0.5}, "x-own": None},
        {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
        {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///tmp/report.pdf", "name": "report.pdf", "size": 1234},
        {"type": "resource", "resource": {"uri": "mem://note", "mimeType": "text/plain", "text": "embedded"}},
    ],
    "structuredContent": {"big": 2**53 + 1, "float": 1.0, "null": None, "z": [1, {"a": "ü"}]},
    "_meta": {"own": {"deep": None}},
    "isError": False,
    "x-unknown": [1.0, None],
}
ERROR: Json = {"code": -32011, "message": "the quota is used up, é", "data": {"retry": 2**53 + 1, "n": None}}
LEVELS = ("debug", "info", "warning", "error")
STATE = "opaque é state"
QUESTIONS: dict[str, Json] = {
    "elicitation": {
        "method": "elicitation/create",
        "params": {
            "message": "What is your name?",
            "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        },
    },
    "sampling": {
        "method": "sampling/createMessage",
        "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "Hello"}}], "maxTokens": 5},
    },
    "roots": {"method": "roots/list", "params": {}},
}
KIND = {"type": "object", "properties": {"kind": {"enum": list(QUESTIONS)}}, "required": ["kind"]}
TOOLS = ["rich", "count", "wait", "refuse", "ask", "log", "hold", "release", "touch"]
CAPABILITIES: Json = {
    "tools": {},
    "resources": {"subscribe": True},
    "prompts": {},
    "completions": {},
    "logging": {},
}


class EraServer:
    """One connection."""

    def __init__(self, era: str, ledger: Path) -> None:
        self.era, self.modern, self.ledger = era, era == MODERN, ledger
        self.asked: dict[str, Any] = {}
        """Id of a question -> id of the call in whose middle it was asked."""
        self.held: list[Any] = []
        self.streams: list[Any] = []

    def send(self, **message: Any) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False)
        sys.stdout.buffer.write(line.encode() + b"\n")
        sys.stdout.buffer.flush()

    def answer(self, ident: Any, result: Json) -> None:
        self.send(id=ident, result={"resultType": "complete", **result} if self.modern else result)

    def say(self, ident: Any, text: str, *, failed: bool = False) -> None:
        self.answer(ident, {"content": [{"type": "text", "text": text}], "isError": failed})

    def fail(self, ident: Any, code: int, message: str, **data: Any) -> None:
        self.send(id=ident, error={"code": code, "message": message, "data": data})

    def notify(self, method: str, **params: Any) -> None:
        self.send(method=method, params=params)

    def received(self, message: Json) -> None:
        with self.ledger.open("a", encoding="utf-8") as ledger:
            ledger.write(json.dumps(message) + "\n")
        ident, method, params = message.get("id"), message.get("method"), message.get("params") or {}
        if method is None:
            call = self.asked.pop(str(ident), None)
            if call is not None:
                given = message.get("result", message.get("error"))
                self.say(call, json.dumps(given), failed="error" in message)
        elif ident is not None:
            self.request(ident, method, params)

    def request(self, ident: Any, method: str, params: Json) -> None:
        info = {"name": f"era-{self.era}", "version": "1"}
        uri = str(params.get("uri"))
        match method:
            case "initialize" if not self.modern:
                self.answer(ident, {"protocolVersion": self.era, "capabilities": CAPABILITIES, "serverInfo": info})
            case "server/discover" if self.modern:
                result = {"supportedVersions": [MODERN], "capabilities": CAPABILITIES, "ttlMs": 0}
                meta = {"io.modelcontextprotocol/serverInfo": info}
                self.answer(ident, {**result, "cacheScope": "private", "_meta": meta})
            case "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" if not self.modern:
                self.answer(ident, {})
            case "subscriptions/listen" if self.modern:
                self.streams.append(ident)
                tag = {"io.modelcontextprotocol/subscriptionId": ident}
                wanted = params["notifications"]
                self.notify("notifications/subscriptions/acknowledged", notifications=wanted, _meta=tag)
            case "tools/list":
                tools = [{"name": n, "description": f"Era {n}", "inputSchema": {"type": "object"}} for n in TOOLS]
                tools[TOOLS.index("ask")]["inputSchema"] = KIND
                self.listed(ident, "tools", tools)
            case "resources/list":
                names = ("note", "watched")
                self.listed(ident, "resources", [{"uri": f"{self.era}://{n}", "name": n, "x-own": n} for n in names])
            case "resources/templates/list":
                template = {"uriTemplate": f"{self.era}://item/{{id}}", "name": "item"}
                self.listed(ident, "resourceTemplates", [template])
            case "prompts/list":
                arguments = [{"name": "who", "required": True}]
                self.listed(ident, "prompts", [{"name": "greet", "arguments": arguments, "x-own": 1}])
            case "resources/read" if uri.startswith((f"{self.era}://note", f"{self.era}://item/")):
                self.answer(ident, {"contents": [{"uri": uri, "text": f"content of {uri}, é", "x-own": None}]})
            case "resources/read":
                self.fail(ident, -32602 if self.modern else -32002, "Resource not found", uri=uri)
            case "prompts/get":
                self.prompt(ident, params)
            case "completion/complete":
                values = [params["argument"]["value"] + end for end in ("a", "b")]
                self.answer(ident, {"completion": {"values": values, "total": 2, "hasMore": False}})
            case "tools/call":
                self.call(ident, params["name"], params.get("arguments") or {}, params)
            case _:
                self.fail(ident, -32601, "Method not found")

    def listed(self, ident: Any, key: str, entries: list[Json]) -> None:
        self.answer(ident, {key: entries, **({"ttlMs": 0, "cacheScope": "private"} if self.modern else {})})

    def prompt(self, ident: Any, params: Json) -> None:
        who = (params.get("arguments") or {}).get("who")
        if who is None:
            self.fail(ident, -32602, "Missing argument: who", argument="who")
        else:
            message = {"role": "user", "content": {"type": "text", "text": f"Greet {who}"}}
            self.answer(ident, {"description": "A greeting", "messages": [message], "x-own": {"n": None}})

    def call(self, ident: Any, name: str, arguments: Json, params: Json) -> None:
        meta = params.get("_meta") or {}
        match name:
            case "rich":
                self.answer(ident, RICH)
            case "count":
                for step in range(1, 6) if "progressToken" in meta else ():
                    more = {"progressToken": meta["progressToken"], "x-own": step}
                    self.notify("notifications/progress", progress=step, total=5, message=f"step {step}", **more)
                self.say(ident, "counted")
            case "refuse":
                self.send(id=ident, error=ERROR)
            case "ask":
                self.ask(ident, arguments["kind"], params, meta)
            case "log":
                for level in LEVELS:
                    self.log(meta, level, {"says": level, "to": arguments.get("to"), "n": None})
                self.say(ident, "logged")
            case "hold":
                self.held.append(ident)
                self.log(meta, "error", "held")
            case "release":
                self.log({"io.modelcontextprotocol/logLevel": "debug"}, "error", "whose is this?")
                for held in self.held:
                    self.say(held, "released")
                self.held.clear()
                self.say(ident, "released")
            case "touch":
                self.touch()
                self.say(ident, "touched")
            case "wait":
                pass
            case _:
                self.fail(ident, -32602, f"Unknown tool: {name}")

    def log(self, meta: Json, level: str, data: Any) -> None:
        """In the stateless era only where the request asks for it; which level is wanted is left to the proxy."""
        if not self.modern or "io.modelcontextprotocol/logLevel" in meta:
            self.notify("notifications/message", level=level, logger="era", data=data)

    def touch(self) -> None:
        uri = f"{self.era}://watched"
        if not self.modern:
            self.notify("notifications/resources/updated", uri=uri)
        for stream in self.streams:
            tag = {"io.modelcontextprotocol/subscriptionId": stream}
            self.notify("notifications/resources/updated", uri=uri, _meta=tag)

    def ask(self, ident: Any, kind: str, params: Json, meta: Json) -> None:
        if not self.modern:
            question = f"question-{ident}"
            self.asked[question] = ident
            self.send(id=question, **QUESTIONS[kind])
        elif kind not in meta.get("io.modelcontextprotocol/clientCapabilities", {}):
            message = f"The client has not declared: {kind}"
            self.fail(ident, -32021, message, requiredCapabilities={kind: {}})
        elif "inputResponses" not in params:
            needed = {"resultType": "input_required", "inputRequests": {"q": QUESTIONS[kind]}, "requestState": STATE}
            self.send(id=ident, result=needed)
        elif params.get("requestState") != STATE:
            self.fail(ident, -32602, "requestState is not what was given")
        else:
            self.say(ident, json.dumps(params["inputResponses"]["q"]))


if __name__ == "__main__":
    server = EraServer(sys.argv[1], Path(sys.argv[2]))
    for line in sys.stdin.buffer:
        server.received(json.loads(line))
