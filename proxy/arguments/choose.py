"""Which reading of the arguments is sent on: the first that fits the schema, else a refusal that shows what would."""

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any, cast

from proxy.arguments.shapes import listing, mapping
from proxy.arguments.unwrap import Arguments, Request, decode_container
from proxy.arguments.validation import Path, Validator, Validators, value_at
from proxy.config import ToolSearchConfig, Validate
from proxy.errors import Refused, Unreadable
from proxy.tool import Tool

log = logging.getLogger(__name__)

_SHOWN_PROBLEMS = 5
_EXAMPLE_KEYS = 12
_EXAMPLE_DEPTH = 4


def choose(
    request: Request, tool: Tool, validators: Validators, mode: Validate, names: ToolSearchConfig | None = None
) -> Arguments:
    """The arguments to send to `tool`.

    A reading other than the literal one is taken only if the literal one does not fit the schema and the other does.
    Where the schema says nothing (`mode` off, or it is broken), the likeliest reading is sent. `names`: the bridge, for
    the advice; None where there is none.

    Raises:
        Refused: `mode` is strict and no reading fits; names the tool, what is wrong (at most 5 things), a right call.
    """
    literal = request.candidates[0]
    validator = None if mode == "off" else validators.get(tool)
    if validator is None or (not request.strays and validator.accepts(literal)):
        return literal
    fitting = [c for c in _readings(request, validator) if validator.accepts(c)]
    if fitting:
        return next((c for c in fitting if validator.declares(c)), fitting[0]) if request.strays else fitting[0]
    refusal = _refusal(request, tool, validator, names)
    if mode == "warn":
        log.warning("%s; sent as it is, because validate is warn", refusal.replace("\n", " "))
        return literal
    raise Refused(refusal)


def taught(refusal: Unreadable, tool: Tool, validators: Validators, names: ToolSearchConfig | None = None) -> str:
    """The text of a refusal that was made without knowing the tool, with a call that is right for `tool`."""
    validator = validators.get(tool)
    if validator is None:
        return str(refusal)
    again, more = _right_call(tool, validator, names), _more(tool, names)
    return "\n".join((f"{refusal.reason} {again}" if again else str(refusal), *more))


def _readings(request: Request, validator: Validator) -> Iterator[Arguments]:
    """The candidates, then each with the JSON strings decoded that do not fit as strings."""
    yield from request.candidates
    for candidate in request.candidates:
        if paths := () if validator.accepts(candidate) else validator.strings_to_decode(candidate):
            decoded = candidate
            for path in paths:
                inner = decode_container(value_at(candidate, path))
                if inner is not None:
                    decoded = cast(Arguments, _replaced(decoded, path, inner))
            yield decoded


def _replaced(value: Any, path: Path, new: Any) -> Any:
    """A copy of `value` with another value at `path`; whatever is not on the path is shared."""
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = _replaced(value[path[0]], path[1:], new)
    return copy


def _refusal(request: Request, tool: Tool, validator: Validator, names: ToolSearchConfig | None) -> str:
    problems = validator.problems(request.candidates[0])
    lines = [f"{tool.public_name} was not called: its arguments do not fit its schema."]
    if request.strays:
        lines.append(f"- {', '.join(map(repr, request.strays))}: stood beside `arguments` and were taken as part of it")
    lines += [f"- {problem}" for problem in problems[:_SHOWN_PROBLEMS]]
    if len(problems) > _SHOWN_PROBLEMS:
        lines.append(f"- and {len(problems) - _SHOWN_PROBLEMS} more")
    if again := _right_call(tool, validator, names):
        lines.append(again)
    return "\n".join((*lines, *_more(tool, names)))


def _right_call(tool: Tool, validator: Validator, names: ToolSearchConfig | None) -> str:
    """A call to copy; "" where none can be made up."""
    example = _example(validator.schema, 0)
    whole = json.dumps(example, ensure_ascii=False)
    if not validator.accepts(example) or len(whole) >= 2000:
        return ""
    if names is None:
        return f"Call it again with arguments such as {whole}."
    return f'Call it again like {names.call_name}({{"name": "{tool.public_name}", "arguments": {whole}}}).'


def _more(tool: Tool, names: ToolSearchConfig | None) -> list[str]:
    return [f'{names.describe_name}({{"name": "{tool.public_name}"}}) shows all its parameters.'] if names else []


def _example(schema: Any, level: int) -> Any:
    """A small value that fits a simple schema: the required keys only. A guess; the caller checks it."""
    if not isinstance(schema, Mapping) or level > _EXAMPLE_DEPTH:
        return "..."
    node = cast(Mapping[str, Any], schema)
    given = [node[key] for key in ("const", "default") if key in node]
    given += [listing(node.get(key))[0] for key in ("examples", "enum") if listing(node.get(key))]
    if level and given:
        return given[0]
    kinds = listing(node.get("type")) or [node.get("type")]
    wanted = next((k for k in kinds if k != "null"), "null")
    branches = listing(node.get("anyOf")) or listing(node.get("oneOf"))
    if wanted is None and branches and level:
        return _example(branches[0], level + 1)
    if wanted == "object" or not level or (wanted is None and "properties" in node):
        known = mapping(node.get("properties"))
        return {k: _example(known.get(k, {}), level + 1) for k in listing(node.get("required"))[:_EXAMPLE_KEYS]}
    if wanted == "array":
        return [_example(node.get("items"), level + 1)] if node.get("minItems") else []
    if wanted in ("integer", "number"):
        return node.get("minimum", 1)
    return {"boolean": True, "null": None}.get(str(wanted), "...")
