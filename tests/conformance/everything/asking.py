"""Asking the client for something while a call runs, in the way of each era.

In the handshake era the server sends its own request and waits. In the stateless era it answers `input_required`, and
the client calls again with `inputResponses` and the `requestState` it was given. A tool is written once for both:

    answers = await call.ask({"user_name": form("What is your name?", name="string")})

The first time round in the stateless era `ask` does not return: it raises `InputNeeded`, which carries the result.
"""

import base64
import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Questions = Mapping[str, Mapping[str, Any]]
"""Key -> the request as on the wire: `{"method": ..., "params": ...}`."""

_CAPABILITIES = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
_TYPES: dict[str, tuple[type[Any], type[Any]]] = {
    "elicitation/create": (types.ElicitRequest, types.ElicitResult),
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResult),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult),
}
_KEY = os.urandom(32)
"""Signs `requestState`: a client must not be able to make one up."""


class InputNeeded(Exception):
    """The call cannot go on without the client; `result` is what to answer."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__("input required")
        self.result = result


def form(message: str, /, **properties: Any) -> dict[str, Any]:
    """An elicitation whose properties are all required; a property is a schema or the name of a type."""
    fields = {k: {"type": v} if isinstance(v, str) else v for k, v in properties.items()}
    return elicitation(message, {"type": "object", "properties": fields, "required": list(fields)})


def elicitation(message: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sampling(text: str, tokens: int = 100) -> dict[str, Any]:
    message = {"role": "user", "content": {"type": "text", "text": text}}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": tokens}}


def roots() -> dict[str, Any]:
    return {"method": "roots/list", "params": {}}


def missing(*capabilities: str) -> MCPError:
    """The error for what a client has not declared (2026-07-28, `MissingRequiredClientCapabilityError`)."""
    return MCPError(
        types.MISSING_REQUIRED_CLIENT_CAPABILITY,
        f"The client has not declared: {', '.join(capabilities)}",
        {"requiredCapabilities": {name: {} for name in capabilities}},
    )


@dataclass
class Call:
    """One request that may ask the client back."""

    context: ServerRequestContext[Any, Any]

    @property
    def modern(self) -> bool:
        return self.context.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def declared(self) -> set[str]:
        """The names of the capabilities that the client has declared."""
        capabilities = self.context.session.client_capabilities
        return set(capabilities.model_dump(exclude_none=True)) if capabilities is not None else set()

    @property
    def responses(self) -> Mapping[str, Any]:
        return (self.context.params or {}).get("inputResponses") or {}

    @cached_property
    def state(self) -> dict[str, Any] | None:
        """What `requestState` held when it was given out; None without one. Raises MCPError for a forged one."""
        sent = (self.context.params or {}).get("requestState")
        if sent is None:
            return None
        body, _, signature = str(sent).partition(".")
        if not hmac.compare_digest(signature, _sign(body)):
            raise MCPError(types.INVALID_PARAMS, "requestState fails its integrity check")
        return json.loads(base64.urlsafe_b64decode(body))

    async def ask(self, questions: Questions, state: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The answers by key, as on the wire. With `state`, the client must also bring that back."""
        lacking = {_CAPABILITIES[q["method"]] for q in questions.values()} - self.declared
        if lacking:
            raise missing(*sorted(lacking))
        if not self.modern:
            return {key: await self._push(question) for key, question in questions.items()}
        if questions.keys() <= self.responses.keys() and self.state == (None if state is None else dict(state)):
            return {key: self.responses[key] for key in questions}
        result: dict[str, Any] = {"resultType": "input_required", "inputRequests": dict(questions)}
        if state is not None:
            body = base64.urlsafe_b64encode(json.dumps(state).encode()).decode()
            result["requestState"] = f"{body}.{_sign(body)}"
        raise InputNeeded(result)

    async def _push(self, question: Mapping[str, Any]) -> dict[str, Any]:
        request_type, result_type = _TYPES[question["method"]]
        result = await self.context.session.send_request(
            request_type.model_validate(question),
            result_type,
            metadata=ServerMessageMetadata(related_request_id=self.context.request_id),
        )
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)


def _sign(body: str) -> str:
    return hmac.new(_KEY, body.encode(), hashlib.sha256).hexdigest()
