"""Gate: what `dispatch` asks at the stages of a call. There is one only where something is configured."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from proxy.caller import Caller, Scope
from proxy.config import GuardConfig, Risk, Settings
from proxy.errors import ConfigError, Refused, UpstreamFailure
from proxy.guard.approval import Approvals, Permit, Subject
from proxy.guard.audit import Audit, Ended
from proxy.guard.base import Base
from proxy.guard.globs import any_name
from proxy.guard.lock import Lock, read_lock
from proxy.guard.policy import Policy, decided, idempotent
from proxy.guard.rate import Rates
from proxy.guard.scope import Scopes
from proxy.guard.spill import CONFIG, SERVER, Spill
from proxy.offers import Kind, Target
from proxy.tool import Tool
from proxy.wire import encode

TRIES = 3
"""How often a call is sent at most where the person lets it be repeated."""
_NAME = 128
_OUTCOME = 300
_COUNTED = ("text", "data", "blob")
"""Keys of a block whose texts are counted as its size."""


def needed(settings: Settings) -> bool:
    """Whether anything is configured that a gate is for."""
    return bool(
        settings.guard is not None
        or settings.profiles
        or any(server.max_result_chars or server.retry for server in settings.servers)
    )


class Gate:
    """The guard of one proxy."""

    def __init__(self, settings: Settings, call_name: str, before: "Gate | None" = None) -> None:
        """`call_name`: the tool through which a result is read on.

        `before`: the guard of the configuration that this one follows. Its kept results, the questions that wait for
        an answer and the calls it has counted are not forgotten.

        Raises:
            ConfigError: there is a lock file, and it cannot be read.
        """
        self.config = settings.guard or GuardConfig()
        self._settings = settings
        self._servers = {server.key: server for server in settings.servers}
        self._lock: Lock | None = None
        self._stamp: tuple[int, int, int] | None = None
        self.look_at_lock()
        self.policy = Policy(self.config)
        self.base = Base(settings, lambda: self._lock)
        self.scopes = Scopes(settings, self.policy)
        limits = {s.key: s.max_result_chars for s in settings.servers if s.max_result_chars}
        self._approvals = Approvals(self.config.ask_timeout)
        self._rates = Rates()
        self._spill = Spill(limits, call_name) if limits else None
        if before is not None:
            self._approvals.follow(before._approvals)
            self._rates = before._rates
            if self._spill is not None and before._spill is not None:
                self._spill.follow(before._spill)
            if before.audit is not None:
                before.audit.end()
        secrets = {secret for server in settings.servers for secret in server.secrets}
        self.audit = Audit(self.config.audit, sorted(secrets, key=len)) if self.config.audit is not None else None
        self._retry = frozenset(s.key for s in settings.servers if s.retry)

    # The lock.

    @property
    def locks(self) -> bool:
        """Whether there is a lock file to look at."""
        return self.config.lock != "off" and self.config.lock_file is not None

    def look_at_lock(self) -> bool:
        """Read the lock file if it has changed; whether it had. Raises ConfigError where it cannot be read."""
        if self.config.lock == "off" or self.config.lock_file is None:
            return False
        try:
            found = self.config.lock_file.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        except FileNotFoundError:
            stamp = (0, 0, 0)
        except OSError as error:
            raise ConfigError(f"{self.config.lock_file}: the lock cannot be read: {error.strerror}") from None
        if stamp == self._stamp:
            return False
        self._lock, self._stamp = read_lock(self.config.lock_file), stamp
        return True

    # The stages of a call, in their order.

    def admit(self, caller: Caller) -> None:
        """Before anything is looked up; raises RateLimited."""
        self._rates.take(self.scopes.profiles(_scope(caller)))

    def denies(self, tool: Tool, caller: Caller) -> bool:
        """Whether the caller may not see `tool`, checked again so that no view can let one through."""
        return tool.server != SERVER and self.scopes.denies(tool, _scope(caller))

    def free(self, tool: Tool, caller: Caller) -> Permit | None:
        """The permit of a call that may be sent unasked; None where a person has to be asked. Raises Refused."""
        if tool.server == SERVER:
            return Permit(caller)
        if caller.reads_only and (risk := self.policy.risk(tool)) != "read":
            call = self._settings.tool_search.call_name
            raise Refused(
                f"{tool.public_name} was not called: it is of the class {risk}, and this tool runs only what reads. "
                f'Use {call}({{"name": "{tool.public_name}", "arguments": {{...}}}}).'
            )
        return Permit(caller) if self.scopes.decision(tool, _scope(caller)) != "ask" else None

    async def ask(self, tool: Tool, arguments: Mapping[str, Any], caller: Caller) -> Permit:
        """What the person says of a call; raises Refused."""
        risk = self.policy.risk(tool)
        return await self._approvals.ask(Subject.of(tool, risk, arguments), risk, arguments, caller)

    def answers(self, tool: Tool, arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any] | None:
        """The result of a built-in tool; None for every other."""
        if tool.server != SERVER or self._spill is None:
            return None
        return self._spill.read(arguments, _owner(caller), lambda wanted: self._still(wanted, caller))

    def _still(self, tool: Tool, caller: Caller) -> bool:
        """Whether the caller may have what came of a call of `tool` by an earlier configuration."""
        server = self._servers.get(tool.server)
        if server is None or not server.enabled or any_name(server.deny + server.exclude, tool.name):
            return False
        return any_name(server.include, tool.name) and not self.denies(tool, caller)

    def repeats(self, tool: Tool, failure: UpstreamFailure, tries: int) -> bool:
        """Whether a call that failed, and may have run, is sent again."""
        return failure.may_have_run and tries < TRIES and tool.server in self._retry and idempotent(tool)

    def bound(self, tool: Tool, arguments: Mapping[str, Any], result: dict[str, Any], permit: Permit) -> dict[str, Any]:
        """The result as the caller gets it."""
        result = self._approvals.carried(permit, tool.public_name, arguments, result)
        return result if self._spill is None else self._spill.bounded(tool, result, _owner(permit.caller))

    def record(self, calls: Iterable[Ended]) -> None:
        """Write a line for each of these calls."""
        if self.audit is not None:
            self.audit.write(*map(self._entry, calls))

    def _entry(self, call: Ended) -> dict[str, Any]:
        at, name, tool, arguments, caller, result, outcome, seconds, tries = call
        server, real, risk = None, name[:_NAME], None
        if tool is not None:
            server, real, risk = tool.server, tool.name, self.policy.risk(tool)
        entry: dict[str, Any] = {
            "time": at,
            **_head(caller, "tool", server, real, risk, outcome, seconds),
            "sent": 0 if arguments is None else _length(arguments),
            "received": 0 if result is None else _size(result.get("content"), result.get("structuredContent")),
        }
        if tries > 1:
            entry["tries"] = tries
        if arguments is not None and self.config.audit is not None and self.config.audit.arguments:
            entry["arguments"] = arguments
        return entry

    # The same for resources, prompts and completions, which read by what they are. (`admit` is for all.)

    def denies_offer(self, target: Target, caller: Caller) -> bool:
        """Whether the caller may not see what the target's server offers."""
        return not self.scopes.opens(target.server, _scope(caller))

    async def ask_offer(self, target: Target, caller: Caller) -> Permit:
        """Whether it may be sent; raises Refused."""
        if decided("read", self.scopes.profiles(_scope(caller))) != "ask":
            return Permit(caller)
        if target.kind == "completion":  # made at every key; and no client can be asked with its result
            raise Refused("Nothing is completed here: reading has to be approved by a person.")
        return await self._approvals.ask(Subject.of_offer(target), "read", target.params, caller)

    def carried(self, target: Target, result: dict[str, Any], permit: Permit) -> dict[str, Any]:
        """The result as the caller gets it."""
        return self._approvals.carried(permit, target.public_name, target.params, result)

    def record_offer(
        self,
        kind: Kind,
        target: Target | None,
        name: str,
        caller: Caller,
        result: Mapping[str, Any] | None,
        outcome: str,
        seconds: float,
    ) -> None:
        """Write the line of a request that was no call."""
        if self.audit is None:
            return
        parts: Mapping[str, Any] = result if result is not None else {}
        content: Any = parts.get("contents", parts.get("messages", parts.get("completion")))
        server, real = (target.server, target.name) if target is not None else (None, name)
        entry: dict[str, Any] = {
            **_head(caller, kind, server, real[:_NAME], "read", outcome, seconds),
            "sent": 0 if target is None else len(encode(target.params)),
            "received": _size(content, None),
        }
        if self.audit.config.arguments and target is not None:
            entry["arguments"] = target.params
        self.audit.write(entry)

    # What is looked up in servers that are ours.

    def servers(self) -> Mapping[str, Any]:
        """The configuration of the built-in server, for look-ups by key."""
        return {SERVER: CONFIG} if self._spill is not None else {}


def _scope(caller: Caller) -> Scope:
    return caller.access.scope if caller.access is not None else ()


def _owner(caller: Caller) -> object:
    """Who may read a kept result: the same token and scope, and over a connection of its own, the same connection."""
    key = caller.origin.key if caller.origin is not None else None
    return (caller.access, caller.client, id(key) if key is not None else None)


def _length(value: Mapping[str, Any]) -> int:
    """Bytes of an object as JSON; 0 where it is nested too deeply to be written, and so was not sent."""
    try:
        return len(encode(value))
    except RecursionError:
        return 0


def _head(
    caller: Caller, kind: str, server: str | None, name: str, risk: Risk | None, outcome: str, seconds: float
) -> dict[str, Any]:
    """What every line says: who asked for what, and how it ended."""
    return {
        "caller": (caller.access.name if caller.access is not None else None) or "local",
        "client": caller.client,
        "profile": "+".join(_scope(caller)) or None,
        "kind": kind,
        "server": server,
        kind: name,
        "risk": risk,
        "outcome": outcome[:_OUTCOME],
        "ms": round(seconds * 1e3, 1),
    }


def _size(content: object, structured: object) -> int:
    """Characters of a result, near enough: texts and data of its blocks, or its structured content."""
    size = 0
    for block in cast(Sequence[Any], content) if isinstance(content, list) else ():
        if isinstance(block, dict):
            fields = cast(dict[str, Any], block)
            inner: Any = fields.get("content")  # a prompt's messages have their blocks inside
            if isinstance(inner, dict):
                fields = cast(dict[str, Any], inner)
            for key in _COUNTED:
                if isinstance(value := fields.get(key), str):
                    size += len(value)
    try:
        return size if size or structured is None else len(json.dumps(structured))
    except RecursionError:
        return 0
