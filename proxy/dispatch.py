"""Dispatch: THE path of a call, however it was named.

    view -> resolve -> deny -> repair and validate -> ask -> send -> bound -> audit

The same for `tool_call`, for an eager tool, for a hidden tool called by its name, and for the command line. It knows
neither framing nor protocol era. Until a guard is configured there is no gate, and `ask`, `bound` and `audit` are not.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Protocol

from proxy.arguments import Request, Validators, choose, taught
from proxy.caller import Caller
from proxy.catalog import Catalog, NotFound
from proxy.config import ServerConfig, ToolSearchConfig
from proxy.errors import LIMITED, Refused, RpcError, Unreadable, UpstreamFailure, outcome_of
from proxy.guard import Ended, Gate
from proxy.search import unknown_name
from proxy.tool import Tool

log = logging.getLogger(__name__)

TOGETHER = 64
"""Calls that are written down in one go at most, as a process that is killed loses those that are not."""
CLIENT_CODES = frozenset({-32042, -32021})
"""Errors that ask something of the client itself (URL elicitation, a missing capability): unchanged either way."""


class Upstreams(Protocol):
    """Whoever can send a call to the server that owns the tool."""

    def call_tool(
        self,
        tool: Tool,
        arguments: Mapping[str, Any] | None,
        meta: Mapping[str, Any],
        caller: Caller,
    ) -> Awaitable[dict[str, Any]]:
        """The upstream's result as it came; raises RpcError or UpstreamFailure."""
        ...


class Dispatcher:
    """Takes calls to upstreams."""

    def __init__(
        self,
        upstreams: Upstreams,
        servers: Mapping[str, ServerConfig],
        bridge: ToolSearchConfig,
        gate: Gate | None = None,
    ) -> None:
        """`servers` by key; `bridge` has the names of the three tools, for the advice in refusals."""
        self._gate = gate
        self._upstreams = upstreams
        self._servers = servers
        self._bridge = bridge
        self._validators = Validators()
        self._ended: list[Ended] = []

    async def call(
        self, view: Catalog, request: Request, meta: Mapping[str, Any], caller: Caller, *, bridged: bool = True
    ) -> dict[str, Any]:
        """Call the tool that the request's name means in `view`, with the first of its candidates that fits.

        `bridged`: whether the callers are shown the three tools; else every tool is shown to them directly.
        Everything that we refuse, and every failure of the upstream, is a result with `isError`.

        Raises:
            RpcError: the upstream's own error, for a direct call.
        """
        started = time.perf_counter()
        gate, permit, tries = self._gate, None, 0
        tool: Tool | None = None
        arguments: Mapping[str, Any] | None = None
        result: dict[str, Any] | None = None
        outcome = "ok"
        try:
            if gate is not None:
                gate.admit(caller)
            tool = self._resolve(view, request.name, caller, bridged=bridged)
            mode = self._servers[tool.server].validate or ("off" if tool.eager or not bridged else "strict")
            fitting = choose(request, tool, self._validators, mode, self._bridge if bridged else None)
            if gate is not None:
                permit = gate.free(tool, caller) or await gate.ask(tool, fitting, caller)
                if permit.question is not None:
                    outcome = "asked"
                    return permit.question
                caller = permit.caller
            arguments = fitting
            result = gate.answers(tool, arguments, caller) if gate is not None else None
            while result is None:
                tries += 1
                try:
                    result = await self._upstreams.call_tool(tool, arguments, meta, caller)
                except UpstreamFailure as failure:
                    # What may have run is sent again only where the person and the tool allow it.
                    if gate is None or not gate.repeats(tool, failure, tries):
                        raise
                    log.info("call %s/%s is sent again: %s", tool.server, tool.name, failure.reason)
            if result.get("isError") is True:
                outcome = "isError"
            return result if gate is None or permit is None else gate.bound(tool, arguments, result, permit)
        except BaseException as error:
            outcome = outcome_of(error)
            if (text := _told(error, tool, caller)) is None:
                raise
            return error_result(text)
        finally:
            seconds = time.perf_counter() - started
            self._note(Ended(time.time(), request.name, tool, arguments, caller, result, outcome, seconds, tries))

    def refusal(self, view: Catalog, refused: Refused, caller: Caller, *, bridged: bool = True) -> str:
        """What the model reads of a refusal that was made before any tool was looked up.

        Only of a tool that `view` holds is more told than was sent.
        """
        if not isinstance(refused, Unreadable):
            return str(refused)
        try:
            tool = self._resolve(view, refused.name, caller, bridged=bridged)
        except Refused:
            return str(refused)
        return taught(refused, tool, self._validators, self._bridge if bridged else None)

    def _note(self, ended: Ended) -> None:
        """Have the call written down in the next turn of the event loop, once its answer is on its way."""
        if not self._ended:
            asyncio.get_running_loop().call_soon(self.write_down)
        self._ended.append(ended)
        if len(self._ended) >= TOGETHER:  # many that need not wait (searches) are answered in one turn
            self.write_down()

    def write_down(self) -> None:
        """Write the lines of the calls that have ended, to the log and to the audit."""
        ended, self._ended = self._ended, []
        for call in ended:
            tool = call.tool
            if tool is not None:
                real = f"{tool.server}/{tool.name}"
            else:
                real = repr(call.name) if call.outcome == LIMITED else f"unknown tool {call.name!r}"
            log.info("call %s by %s: %s, %.0f ms", real, call.caller.client, call.outcome, call.seconds * 1e3)
        if self._gate is not None:
            self._gate.record(ended)

    def _resolve(self, view: Catalog, name: str, caller: Caller, *, bridged: bool) -> Tool:
        try:
            tool = view.resolve(name)
        except NotFound as miss:
            raise self._unknown(view, miss, caller, bridged=bridged) from None
        # Checked again here, so that no way of building a view can ever let a denied tool through.
        globs = self._servers[tool.server].deny
        denied = globs and any(fnmatchcase(tool.name, glob) for glob in globs)
        if denied or (self._gate is not None and self._gate.denies(tool, caller)):
            # Nothing of the view is told: it shows what it should not.
            raise self._unknown(Catalog(), NotFound(name), caller, bridged=bridged)
        return tool

    def _unknown(self, view: Catalog, miss: NotFound, caller: Caller, *, bridged: bool) -> Refused:
        told = unknown_name(view, miss, self._bridge.search_name if bridged else None)
        # Most of what models call in vain through a bridge is their host's (failure report B1), as no person's is.
        if bridged and caller.bridge and caller.origin is not None and not miss.candidates:
            told += f" A tool that your host gives you itself is called directly, not through {self._bridge.call_name}."
        return Refused(told)


def error_result(text: str) -> dict[str, Any]:
    """A tool result that says that the call failed, and why."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def failed(failure: UpstreamFailure, tool: Tool | None = None) -> str:
    """What the model is told when an upstream did not answer."""
    advice = (
        "The call may have run: check its effect before you repeat it."
        if failure.may_have_run
        else "The call did not run. Try again later, or use another tool."
    )
    what = f", tool {tool.name!r}" if tool is not None else ""
    return f"Server {failure.server!r}{what}: {failure.reason.removesuffix('.')}. {advice}"


def _told(error: BaseException, tool: Tool | None, caller: Caller) -> str | None:
    """What the model reads of an error; None for one that is not made a result of."""
    match error:
        case Refused():
            return str(error)
        case UpstreamFailure():
            return failed(error, tool)
        case RpcError() if caller.bridge and error.code not in CLIENT_CODES:
            return _answered(error, tool)
        case _:
            return None


def _answered(error: RpcError, tool: Tool | None) -> str:
    where = f"Server {tool.server!r}, tool {tool.name!r}" if tool is not None else "The server"
    data = "" if error.data is None else f", data {json.dumps(error.data, ensure_ascii=False)}"
    return f"{where} answered with an error: {error.message} (code {error.code}{data})"
