"""Asking the person before a call runs (`policy: {write: ask}`), in both eras.

A client with a standing channel is asked in the middle of its call. A stateless one gets the question as the result,
`input_required`, and calls again with the answer and with a state that we signed: over the caller, the tool, a hash of
the arguments and the time it is good until. So an answer is good for the very call that was asked about, once.

A tool that asks something itself (its own `input_required`) puts its state inside ours, or its person would be asked
for the approval again at every round.
"""

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import anyio

from proxy.caller import Access, Caller, Origin
from proxy.config import Risk
from proxy.errors import Refused, RpcError
from proxy.offers import Target
from proxy.text import one_line, shorten
from proxy.tool import Tool

KEY = "narrow_waist_approval"
"""Key of our question among `inputRequests`, and of its answer among `inputResponses`."""
METHOD = "elicitation/create"
_ARGUMENTS = 1_000
"""Characters of the arguments that a person is shown."""
_USED = 10_000


class Permit(NamedTuple):
    """How a call may go on."""

    caller: Caller
    """With the answers that are the upstream's own."""
    question: dict[str, Any] | None = None
    """The result to answer with instead of calling: the person has to be asked first."""
    approved: bool = False
    """A person has approved this call."""


@dataclass(frozen=True)
class Subject:
    """What a person is asked about."""

    name: str
    """As the client knows it."""
    question: str
    """The text that the person sees; nothing that a server wrote about itself is in it."""

    @classmethod
    def of(cls, tool: Tool, risk: Risk, arguments: Mapping[str, Any]) -> "Subject":
        """A call. The tool is named as its server names it."""
        shown = shorten(one_line(json.dumps(arguments, ensure_ascii=False)), _ARGUMENTS)
        text = f"Run {one_line(tool.name)} of {one_line(tool.server)} ({risk}) with the arguments {shown}?"
        return cls(tool.public_name, text)

    @classmethod
    def of_offer(cls, target: Target) -> "Subject":
        """A resource that is read, or a prompt that is got."""
        shown = shorten(one_line(target.name), _ARGUMENTS)
        return cls(target.public_name, f"Give the {target.kind} {shown} of {one_line(target.server)} to the client?")


class Approvals:
    """The questions about calls, and their answers."""

    def __init__(self, timeout: float, clock: Callable[[], float] = time.time) -> None:
        """`timeout`: seconds that a person has to answer."""
        self._timeout, self._clock = timeout, clock
        self._key = secrets.token_bytes(32)
        self._used: dict[str, float] = {}
        """Nonce of an answer that was used -> until when it would have been good."""

    def follow(self, before: "Approvals") -> None:
        """Take the answers to its questions too, and none twice."""
        self._key, self._used = before._key, before._used

    async def ask(self, subject: Subject, risk: Risk, arguments: Mapping[str, Any], caller: Caller) -> Permit:
        """Have the person decide.

        Raises:
            Refused: they said no, did not answer in time, or cannot be asked.
        """
        origin = caller.origin
        if origin is None or "elicitation" not in origin.capabilities:
            raise Refused(
                f"{subject.name} was not called: it is of the class {risk}, which has to be approved by a person, "
                "and this client cannot ask one (it does not declare elicitation). Use a client that can, or have the "
                "profile changed by whoever runs this proxy."
            )
        name = subject.name
        schema: dict[str, Any] = {"type": "object", "properties": {}}
        question: dict[str, Any] = {"message": subject.question, "requestedSchema": schema}
        if not origin.stateless:
            await self._live(name, question, origin)
            return Permit(caller, approved=True)
        if (found := self._read(caller.answers.get("requestState"))) is not None:
            if all(found.get(key) == value for key, value in _call(name, arguments, caller).items()):
                return self._resumed(name, found, caller)
        asked: dict[str, Any] = {
            "resultType": "input_required",
            "inputRequests": {KEY: {"method": METHOD, "params": question}},
            "requestState": self._sign("asked", name, arguments, caller, {}),
        }
        return Permit(caller, question=asked)

    def carried(
        self, permit: Permit, name: str, arguments: Mapping[str, Any], result: dict[str, Any]
    ) -> dict[str, Any]:
        """`result`, where it asks for input itself with its state inside ours."""
        if not permit.approved or result.get("resultType") != "input_required":
            return result
        origin = permit.caller.origin
        if origin is None or not origin.stateless:
            return result
        inner = {"inner": result["requestState"]} if "requestState" in result else {}
        return {**result, "requestState": self._sign("approved", name, arguments, permit.caller, inner)}

    async def _live(self, name: str, question: Mapping[str, Any], origin: Origin) -> None:
        answer: dict[str, Any] = {}
        try:
            with anyio.fail_after(self._timeout):
                answer = await origin.ask(METHOD, question)
        except TimeoutError:
            raise Refused(f"{name} was not called: nobody approved it in {self._timeout:.0f} s.") from None
        except RpcError as error:
            raise Refused(f"{name} was not called: the person could not be asked ({error}).") from None
        _decided(name, answer)

    def _resumed(self, name: str, state: Mapping[str, Any], caller: Caller) -> Permit:
        """The call that follows a question: ours, or the upstream's own."""
        responses = _mapping(caller.answers.get("inputResponses"))
        if state.get("stage") == "asked":
            nonce = str(state.get("nonce"))
            if nonce in self._used:
                raise Refused(f"{name} was not called: that approval has been used. Send the call anew.")
            _decided(name, _mapping(responses.get(KEY)))
            self._use(nonce, float(state["until"]))
        own = {key: value for key, value in responses.items() if key != KEY}
        answers: dict[str, Any] = {"inputResponses": own} if own else {}
        if "inner" in state:
            answers["requestState"] = state["inner"]
        return Permit(caller._replace(answers=answers), approved=True)

    def _use(self, nonce: str, until: float) -> None:
        now = self._clock()
        if len(self._used) >= _USED:
            self._used = {each: end for each, end in self._used.items() if end > now}
        self._used[nonce] = until

    def _sign(
        self, stage: str, name: str, arguments: Mapping[str, Any], caller: Caller, more: Mapping[str, Any]
    ) -> str:
        state = {
            "stage": stage,
            **_call(name, arguments, caller),
            "until": self._clock() + self._timeout,
            "nonce": secrets.token_hex(8),
            **more,
        }
        body = base64.urlsafe_b64encode(json.dumps(state).encode()).decode()
        return f"{body}.{self._mac(body)}"

    def _read(self, given: object) -> Mapping[str, Any] | None:
        """The state that we signed and that is still good, else None."""
        if not isinstance(given, str) or not given.isascii():
            return None
        body, _, mac = given.rpartition(".")
        if not hmac.compare_digest(mac, self._mac(body)):
            return None
        state: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body))
        return state if state["until"] >= self._clock() else None

    def _mac(self, body: str) -> str:
        return hmac.new(self._key, body.encode(), hashlib.sha256).hexdigest()


def _decided(name: str, answer: Mapping[str, Any]) -> None:
    if answer.get("action") != "accept":
        word = "did not answer" if answer.get("action") == "cancel" or not answer else "declined"
        raise Refused(f"{name} was not called: the person who was asked {word}. Do not try it again unasked.")


def _mapping(value: object) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}


def _call(name: str, arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """What an answer is good for: this call of this caller, and no other."""
    access = caller.access or Access()
    return {
        "caller": [access.name, list(access.scope), caller.client],
        "tool": name,
        "arguments": hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest(),
    }
