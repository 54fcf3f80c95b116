"""Arguments against a tool's input schema, by jsonschema-rs; the engine was chosen by measurement.

Of 6,453 real schemas jsonschema-rs cannot compile 6 (dangling references) in 0.16 s; jsonschema takes 8.5 s to check
them, and a hostile `pattern` hangs it and fastjsonschema for ever, since both use `re`. jsonschema-rs matches in linear
time, or with a limit where look-around needs backtracking.
"""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import jsonschema_rs
from jsonschema_rs import ValidationError, ValidationErrorKind

from proxy.arguments.cost import deepest_checkable, depth
from proxy.arguments.shapes import kind, listing, mapping
from proxy.text import one_line, shorten
from proxy.tool import Tool

_BACKTRACKS = 10_000
"""About half a millisecond for one string; the library's own default of a million is 50 ms."""
_MOST_ERRORS = 100
_WIDTH = 160
_NAME_WIDTH = 60
_OPTIONS = 8

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with the arguments."""

    path: Path
    text: str
    """What was expected, without the path."""

    def __str__(self) -> str:
        place = ""
        for step in self.path:
            place += f"[{step}]" if isinstance(step, int) else f".{step}" if place else str(step)
        return f"{shorten(one_line(place), _WIDTH)}: {self.text}" if place else self.text


class Validator:
    """One tool's compiled schema."""

    def __init__(self, compiled: jsonschema_rs.Validator, schema: Mapping[str, Any], deepest: int) -> None:
        self.schema = schema
        self._compiled = compiled
        self._deepest = deepest

    def accepts(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the arguments fit the schema, or cannot be checked against it."""
        try:
            if depth(arguments) > self._deepest:
                return True
            return self._compiled.is_valid(arguments) or not any(True for _ in self._errors(arguments))
        except BaseException as error:  # a lone surrogate in a key, say: nothing a schema could speak about
            return _no_verdict(error)

    def problems(self, arguments: Mapping[str, Any]) -> tuple[Problem, ...]:
        """What is wrong; empty where nothing is."""
        if self.accepts(arguments):
            return ()
        found = (Problem(tuple(e.instance_path), _explain(e, self.schema, arguments)) for e in self._errors(arguments))
        return tuple(dict.fromkeys(found))

    def declares(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the schema names every key of the arguments."""
        return arguments.keys() <= mapping(self.schema.get("properties")).keys()

    def strings_to_decode(self, arguments: Mapping[str, Any]) -> tuple[Path, ...]:
        """Where a string stands that does not fit, and an object or a list might."""
        paths = (tuple(e.instance_path) for e in self._errors(arguments) if _wants_container(e))
        return tuple(p for p in dict.fromkeys(paths) if p and isinstance(value_at(arguments, p), str))

    def _errors(self, arguments: Mapping[str, Any]) -> Iterator[ValidationError]:
        found = islice(self._compiled.iter_errors(arguments), _MOST_ERRORS)
        return (e for e in found if not _gave_up(e))


class Validators:
    """Compiled schemas, kept per tool; the dispatcher owns one of these."""

    def __init__(self, limit: int = 1024) -> None:
        self._limit = limit
        self._kept: dict[str, tuple[object, Validator | None]] = {}

    def get(self, tool: Tool) -> Validator | None:
        """The tool's validator; None where its schema is broken or unusual, so that any arguments will do."""
        source = tool.raw.get("inputSchema")
        kept = self._kept.pop(tool.public_name, None)
        if kept is None or kept[0] is not source:
            kept = (source, compile_schema(tool.input_schema))
        self._kept[tool.public_name] = kept  # at the end: the last one used
        if len(self._kept) > self._limit:
            del self._kept[next(iter(self._kept))]
        return kept[1]


def compile_schema(schema: Mapping[str, Any]) -> Validator | None:
    """A validator for an input schema of any draft; None where the schema is invalid, unusual or too costly to check.

    No reference is ever fetched, and `format` is ignored.
    """
    if not _speaks_of_objects(schema):
        return None
    try:
        deepest = deepest_checkable(schema)
        if deepest < 1:
            return None
        compiled = jsonschema_rs.validator_for(
            dict(schema),
            validate_formats=False,
            offline=True,
            mask="the value",
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS),
        )
    except BaseException as error:
        _no_verdict(error)
        return None
    return Validator(compiled, schema, deepest)


def _no_verdict(error: BaseException) -> bool:
    """True for a failure of the engine; raises what is none.

    A panic in Rust is a BaseException whose class cannot be imported; it must not take the proxy down with it.
    """
    if isinstance(error, Exception) or type(error).__name__ == "PanicException":
        return True
    raise error


def _speaks_of_objects(schema: Mapping[str, Any]) -> bool:
    """Whether any object at all can fit: arguments are always an object, whatever a careless schema says."""
    kinds = schema.get("type", "object")
    if kinds != "object" and not (isinstance(kinds, list) and "object" in kinds):
        return False
    known = mapping(schema.get("properties"))
    closed = schema.get("additionalProperties") is False and not schema.get("patternProperties")
    return not (closed and any(k not in known for k in listing(schema.get("required"))))


def value_at(arguments: Any, path: Sequence[str | int]) -> Any:
    """The value at a path, None where there is none."""
    for step in path:
        try:
            arguments = arguments[step]
        except (KeyError, IndexError, TypeError):
            return None
    return arguments


def _gave_up(error: ValidationError) -> bool:
    """Whether this is no verdict: a pattern took too long to match, here or in a branch."""
    if isinstance(error.kind, ValidationErrorKind.BacktrackLimitExceeded | ValidationErrorKind.RegexEngineFailure):
        return True
    return any(_gave_up(e) for branch in _branches(error.kind) for e in branch)


def _branches(verdict: ValidationErrorKind) -> list[list[ValidationError]]:
    return cast(list[list[ValidationError]], getattr(verdict, "context", []))


def _types(error: ValidationError) -> set[str]:
    """The types that an error says are allowed where it is."""
    if isinstance(error.kind, ValidationErrorKind.Type):
        return set(error.kind.types)
    here = list(error.instance_path)
    return {t for branch in _branches(error.kind) for e in branch if list(e.instance_path) == here for t in _types(e)}


def _wants_container(error: ValidationError) -> bool:
    return not _types(error).isdisjoint(("object", "array"))


def _explain(error: ValidationError, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """One error in words a model can act on."""
    match error.kind:
        case ValidationErrorKind.Required(property=name):
            return f"{_quoted(name)} is required and missing"
        case ValidationErrorKind.AdditionalProperties(unexpected=unexpected):
            return _unknown_keys(unexpected, error.instance_path, schema)
        case ValidationErrorKind.FalseSchema() if error.schema_path[-1:] == ["additionalProperties"]:
            known = mapping(None if error.instance_path else schema.get("properties"))
            found = mapping(value_at(arguments, error.instance_path))
            return _unknown_keys([k for k in found if k not in known], error.instance_path, schema)
        case ValidationErrorKind.FalseSchema():
            return "must not be given"
        case ValidationErrorKind.Enum(options=options):
            shown = ", ".join(_quoted(o) for o in options[:_OPTIONS])
            more = f" and {len(options) - _OPTIONS} more" if len(options) > _OPTIONS else ""
            near = _near(value_at(arguments, error.instance_path), [o for o in options if isinstance(o, str)])
            return f"expected one of {shown}{more}{near}"
        case _ if types := _types(error):
            return f"expected {' or '.join(sorted(types))}, got {kind(value_at(arguments, error.instance_path))}"
        case _:
            return shorten(one_line(error.message), _WIDTH)


def _unknown_keys(unexpected: list[str], path: Sequence[str | int], schema: Mapping[str, Any]) -> str:
    known = [] if path else list(mapping(schema.get("properties")))
    parts = [f"{_quoted(k)}{_near(k, known)}" for k in unexpected[:_OPTIONS]]
    valid = (
        ""
        if path
        else f"; valid keys: {', '.join(shorten(one_line(k), _NAME_WIDTH) for k in known[:20])}"
        if known
        else "; it takes no arguments"
    )
    return f"unknown key{'s' if len(unexpected) > 1 else ''} {', '.join(parts)}{valid}"


def _quoted(value: Any) -> str:
    """A name or value out of a schema or a call as JSON on one line, shortened; an upstream wrote it."""
    return shorten(one_line(json.dumps(value, ensure_ascii=False)), _NAME_WIDTH)


def _near(value: Any, known: list[str]) -> str:
    near = difflib.get_close_matches(value[:100], known[:500], 1) if isinstance(value, str) else []
    return f" (did you mean {_quoted(near[0])}?)" if near else ""
