"""What all client scripts share: they read a list of steps from stdin as JSON, and print each answer as one line.

    python CLIENT_SCRIPT.py stdio COMMAND...  |  http URL  |  sse URL        (TOKEN: the bearer token, if any)

A step is `{"do": METHOD, ...}`: a method of `Actions` with its arguments. Its answer is what the method returns, or
`{"error": {"code", "message", "data"}}` for a JSON-RPC error. Standard library only: each script runs in another
environment. The clients of the TypeScript SDK speak the same protocol (ts_client.mjs).
"""

import json
import sys
from typing import Any, Protocol

ELICITED = {"name": "Ada é"}
"""What every client answers when it is asked for a name."""
LEVEL_META = "io.modelcontextprotocol/logLevel"
Json = dict[str, Any]


class Actions(Protocol):
    """What every client can do; results are as on the wire."""

    errors: type[Exception]
    """What its SDK raises for a JSON-RPC error."""

    async def tools(self) -> list[str]: ...

    async def call(self, name: str, arguments: Json, level: str | None = None) -> Json:
        """`{"result", "progress": [...], "logs": [...], "asked": [...]}`; `level`: of the log messages it wants."""
        ...

    async def cancel(self, name: str, arguments: Json) -> bool:
        """Call, and cancel at the first progress."""
        ...

    async def resources(self) -> list[str]: ...

    async def templates(self) -> list[str]: ...

    async def read(self, uri: str) -> list[Json]: ...

    async def prompts(self) -> list[str]: ...

    async def prompt(self, name: str, arguments: Json) -> list[Json]: ...

    async def complete(self, prompt: str, argument: str, value: str) -> list[str]: ...


def raw(model: Any) -> Any:
    """A model of any of the SDKs as on the wire."""
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


async def run(client: Actions) -> None:
    """Do the steps."""
    for step in json.load(sys.stdin):
        try:
            answer = await getattr(client, step.pop("do"))(**step)
        except client.errors as error:
            data = getattr(error, "error", error)
            answer = {"error": {"code": data.code, "message": data.message, "data": data.data}}
        print(json.dumps(answer), flush=True)
