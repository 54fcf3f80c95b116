"""A call's parameters as models send them -> the tool's name and the possible readings of its arguments.

The forms come from public reports: JSON strings, also twice encoded; the whole request inside `arguments`; the tool's
arguments flat beside its name; `calls` with one entry; tool_call inside tool_call; other words for `arguments`.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn, cast

from proxy.arguments.shapes import kind
from proxy.config import ToolSearchConfig
from proxy.errors import Refused, Unreadable

Arguments = dict[str, Any]

NAME_KEYS = ("name", "tool_name", "toolName", "tool")
ARGUMENT_KEYS = ("arguments", "args", "params", "parameters", "input", "tool_input", "tool_args")
_ARGUMENT_KEYS = frozenset(ARGUMENT_KEYS)
_ENCODINGS = 2
"""How many times a JSON string may have been encoded; more was never seen."""
_SEPARATORS = ("__", ".", "/", ":")
_SHOWN_KEYS = 8


class Request(NamedTuple):
    """A call before its arguments are settled."""

    name: str
    """As sent: a tool in any spelling, or the search or describe tool of the bridge."""
    candidates: tuple[Arguments, ...]
    """Readings of the arguments, the likeliest first; never empty."""
    strays: tuple[str, ...] = ()
    """Keys that stood beside `arguments`. They are in every candidate, for nothing may be dropped in silence; where
    there are some, no candidate is what was literally sent."""


def direct(name: str, sent: Any) -> Request:
    """The request of a tool that was called by its own name, without the bridge.

    Raises:
        Unreadable: `sent` is not an object and cannot be read as one.
    """
    given = _decode(sent)
    if isinstance(given, str):
        form = "Send its arguments as a JSON object, for example {}."
        raise Unreadable(name, f"{name} was not called: {given}.", form)
    return Request(name, (given, *_one_nesting_less(given, name)))


def unwrap(sent: Any, names: ToolSearchConfig) -> Request:
    """The request inside the parameters of a `tool_call`.

    The name of the search or describe tool is returned as a name like any other: the caller routes it.

    Raises:
        Refused: no tool can be told, or its arguments cannot be read (Unreadable); the text differs by cause.
    """
    plain = _plain(sent, names.call_name)
    return plain if plain is not None else _Unwrapper(names).request(sent, depth=0)


def _plain(sent: Any, call_name: str) -> Request | None:
    """The request of parameters that are just as they are asked for; None for every other form."""
    body: Arguments = cast(Arguments, sent) if isinstance(sent, dict) else {}
    name, given = body.get("name"), body.get("arguments")
    if len(body) != 2 or not isinstance(name, str) or not isinstance(given, dict):
        return None
    if not name or name != name.strip() or name == call_name or name.startswith("mcp_"):
        return None
    arguments = cast(Arguments, given)
    return Request(name, (arguments,)) if _ARGUMENT_KEYS.isdisjoint(arguments) else None


class _Unwrapper:
    def __init__(self, names: ToolSearchConfig) -> None:
        self.names = names

    def request(self, sent: Any, depth: int) -> Request:
        body = _decode(sent)
        if isinstance(body, str):
            self.refuse(body)
        name_key = self.name_key(body)
        if name_key is None:
            return self.nameless(body, depth)
        name = body[name_key]
        if not isinstance(name, str):
            self.refuse(f"`{name_key}` must be the name of one tool, as a string")
        name = name.strip()
        given = _decode(body.get("arguments"))
        if isinstance(given, str):
            self.refuse(given, name)
        strays: Arguments = {}
        if len(body) > 1 + ("arguments" in body):
            strays = {k: v for k, v in body.items() if k not in (name_key, "arguments")}
            if all(v is None for v in strays.values()):
                strays = {}
        if name == self.names.call_name or self.is_call_as_hosts_write_it(name, given):
            return self.nested(given, strays, depth)
        name, strays, dropped = _without_server(name, strays, given)
        readings = self.readings(name, given, strays)
        if dropped is not None and not given:  # `server` may also be an argument of the tool
            readings = (*readings, *self.readings(name, given, strays | {"server": dropped}))
        return Request(name, readings, tuple(strays))

    @staticmethod
    def name_key(body: Mapping[str, Any]) -> str | None:
        """The key that holds the tool's name: `name`, else another word for it if just one is there."""
        if body.get("name") not in (None, ""):
            return "name"
        others = [k for k in NAME_KEYS[1:] if isinstance(body.get(k), str) and body[k].strip()]
        return others[0] if len(others) == 1 else None

    def is_call_as_hosts_write_it(self, name: str, given: Arguments) -> bool:
        """Whether the name is the one a host shows for `tool_call`, as in `mcp__proxy__tool_call`, with a request."""
        return (
            name.startswith("mcp_") and name.endswith(f"_{self.names.call_name}") and self.name_key(given) is not None
        )

    def nameless(self, body: Arguments, depth: int) -> Request:
        """The request where no name is at its place: one entry of `calls`, or the whole request inside `arguments`."""
        calls = body.get("calls")
        if isinstance(calls, str):
            calls = _loads(calls)[0]
        if isinstance(calls, dict) and self.name_key(cast(Arguments, calls)) is not None:
            return self.request(calls, depth + 1)  # an entry without its list
        if isinstance(calls, list):
            entries = cast(list[Any], calls)
            if len(entries) == 1 and depth < 2:
                return self.request(entries[0], depth + 1)
            self.refuse_calls(len(entries))
        wrapped = [k for k in ARGUMENT_KEYS if body.get(k) not in (None, "", {})]
        if len(wrapped) == 1 and depth < 2:
            inner = _decode(body[wrapped[0]])
            if isinstance(inner, dict) and (self.name_key(inner) or isinstance(inner.get("calls"), list)):
                rest = {k: v for k, v in body.items() if k != wrapped[0] and v not in (None, "", {})}
                return self.request(self.merged(inner, rest, None), depth + 1)
            if isinstance(inner, str) and wrapped[0] == "arguments":
                self.refuse(f"`name` is missing, and {inner}")
        self.refuse_nameless(body)

    def nested(self, given: Arguments, strays: Arguments, depth: int) -> Request:
        """The request of a tool_call inside a tool_call, which is unwrapped once."""
        inner = self.merged(given, strays, None)
        if depth:
            self.refuse(f"{self.names.call_name} is nested in itself more than once; name the tool itself")
        if not inner:
            self.refuse(f"{self.names.call_name} cannot call itself; `name` must be the tool you want to use")
        return self.request(inner, depth + 1)

    def readings(self, name: str, given: Arguments, strays: Arguments) -> tuple[Arguments, ...]:
        """What the arguments may be, the likeliest first."""
        if not strays:
            return (given, *_one_nesting_less(given, name))
        if given:
            return (self.merged(given, strays, name),)
        found: list[Arguments] = []
        aliases = [k for k in ARGUMENT_KEYS[1:] if k in strays]
        if len(aliases) == 1:
            inner = _decode(strays[aliases[0]])
            rest = {k: v for k, v in strays.items() if k != aliases[0]}
            if isinstance(inner, dict) and not inner.keys() & rest.keys():
                found.append(inner | rest)
        return (*found, strays)

    def merged(self, given: Arguments, strays: Arguments, name: str | None) -> Arguments:
        """`given` with the keys that stood beside it; refuses where both say something different."""
        if clash := sorted(k for k in given.keys() & strays.keys() if given[k] != strays[k]):
            self.refuse(f"{_listed(clash)} stands beside `arguments` and in it, with different values", name)
        return given | strays

    def refuse(self, reason: str, name: str | None = None) -> NoReturn:
        """Says what is wrong, and shows the right shape."""
        what, form = f"{name or self.names.call_name} was not called: {reason}.", f"Send {self.example(name)}"
        raise Unreadable(name, what, form) if name else Refused(f"{what} {form}")

    def refuse_calls(self, count: int) -> NoReturn:
        reason = f"`calls` has {count} entries, but one call runs one tool"
        step = "Send them as separate calls, which run side by side, each like" if count else "Send"
        raise Refused(f"{self.names.call_name} was not called: {reason}. {step} {self.example()}")

    def refuse_nameless(self, body: Arguments) -> NoReturn:
        call, search, describe = self.names.call_name, self.names.search_name, self.names.describe_name
        keys = [k for k in body if k not in ("name", "arguments")]
        sure = f"{search} finds names, {describe} shows a tool's parameters."
        if not keys:
            raise Refused(f"{call} was not called: `name` is missing. Send {self.example()} {sure}")
        if keys[0] in ("query", "queries"):
            word = json.dumps(_shortened(body[keys[0]]), ensure_ascii=False)
            sure += f' If you meant to search, send {search}({{"{keys[0]}": {word}}}).'
        shown = "{" + ", ".join(f"{json.dumps(k, ensure_ascii=False)}: ..." for k in keys[:_SHOWN_KEYS]) + "}"
        looks = "looks like an argument" if len(keys) == 1 else "look like arguments"
        raise Refused(
            f"{call} was not called: `name` is missing; {_listed(keys)} {looks} of a tool. "
            f'Send {call}({{"name": "server__tool", "arguments": {shown}}}) with the tool\'s name. {sure}'
        )

    def example(self, name: str | None = None) -> str:
        """A call as it should be, to copy."""
        quoted = json.dumps(name or "server__tool", ensure_ascii=False)
        return f'{self.names.call_name}({{"name": {quoted}, "arguments": {{"parameter": "value"}}}}).'


def _without_server(name: str, strays: Arguments, given: Arguments) -> tuple[str, Arguments, Any]:
    """A `server` beside the name, as the search answers show it, belongs to the name.

    Returns the name, the other strays, and the server's key where it was taken out.
    """
    server = strays.get("server")
    if not isinstance(server, str) or not server:
        return name, strays, None
    rest = {k: v for k, v in strays.items() if k != "server"}
    if any(name.startswith(prefix + server + s) for s in _SEPARATORS for prefix in ("", "mcp__")):
        return name, rest, server
    if given and not rest:
        return f"{server}.{name}", rest, server
    return name, strays, None


def _one_nesting_less(given: Arguments, name: str) -> tuple[Arguments, ...]:
    """The reading of `{"arguments": {...}}`, perhaps with the tool's name repeated, as what is inside."""
    if _ARGUMENT_KEYS.isdisjoint(given):
        return ()
    inside = [k for k in given if k in ARGUMENT_KEYS]
    names = [k for k in given if k in NAME_KEYS]
    if len(inside) != 1 or len(inside) + len(names) != len(given) or any(given[k] != name for k in names):
        return ()
    inner = _decode(given[inside[0]])
    return () if isinstance(inner, str) else (inner,)


def _decode(value: Any) -> Arguments | str:
    """`value` as an object: itself, or the JSON in a string. null, "" and a missing value are no arguments.

    What cannot be read comes back as the reason, in words that follow "was not called: ".
    """
    if isinstance(value, dict):
        return cast(Arguments, value)
    for _ in range(_ENCODINGS):
        if not isinstance(value, str):
            break
        if not value.strip():
            return {}
        value, reason = _loads(value)
        if reason:
            return f"arguments is not valid JSON ({reason})"
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return dict(cast(Mapping[str, Any], value))
    return f"arguments must be a JSON object, not of type {kind(value)}"


def decode_container(text: str) -> Any:
    """The object or list that a JSON string holds, else None."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    return _loads(text)[0]


def _loads(text: str) -> tuple[Any, str]:
    """The value of a JSON text and "", or None and why it is none."""
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite), ""
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        if cut:
            return None, f"ends at position {len(text)}"
        hint = "; JSON wants double quotes" if text[error.pos : error.pos + 1] == "'" else ""
        return None, f"{error.msg[:1].lower()}{error.msg[1:]} at position {error.pos + 1}{hint}"
    except ValueError as error:
        return None, str(error)
    except RecursionError:
        return None, "nested too deeply"


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:20]} is too large")
    return number


def _listed(keys: list[str]) -> str:
    more = f" and {len(keys) - _SHOWN_KEYS} more" if len(keys) > _SHOWN_KEYS else ""
    return ", ".join(repr(k[:60]) for k in keys[:_SHOWN_KEYS]) + more


def _shortened(value: Any) -> Any:
    return value[:80] if isinstance(value, str) else value if len(repr(value)) < 200 else "..."
