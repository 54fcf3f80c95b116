"""Makes the demo's large catalog from the Cloudflare API client on PyPI: one MCP tool for each endpoint method.

    pip install cloudflare==5.9.0
    python scripts/make_demo_catalog.py            # writes proxy/data/cloudflare.jsonl.gz
    python scripts/make_demo_catalog.py --check    # fails when that file is not what this script makes

Nothing is invented: names, texts and types are the client's own, read by introspection and from its source. One JSON
line per endpoint: {"tool": the MCP tool, "http": {"verb", "path", "query": [names], "alias": {name: name sent}}};
parameters that are in neither path nor query are the body. The same client version always gives the same bytes.
"""

import ast
import gzip
import importlib
import inspect
import json
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from demo_catalog_schema import alias_of, described, schema_of, split_docstring

TARGET = Path(__file__).parent.parent / "proxy" / "data" / "cloudflare.jsonl.gz"
VERBS = {"_get": "GET", "_get_api_list": "GET", "_post": "POST", "_put": "PUT", "_patch": "PATCH", "_delete": "DELETE"}
ANNOTATIONS: dict[str, dict[str, bool]] = {
    "GET": {"readOnlyHint": True},
    "POST": {"readOnlyHint": False},
    "PUT": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True},
    "PATCH": {"readOnlyHint": False, "destructiveHint": True},
    "DELETE": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True},
}
# Of every method of such a client: how to send, not what.
TRANSPORT_PARAMETERS = {"self", "extra_headers", "extra_query", "extra_body", "timeout"}


def endpoints(resource: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """(tool name, method) for every endpoint below `resource`, an API client or one of its resources."""
    owner: Any = type(resource)
    for name in sorted(vars(owner)):
        if name.startswith("_") or name.startswith("with_"):
            continue
        value = vars(owner)[name]
        if inspect.isfunction(value):
            if path:
                yield "_".join((*path, name)), inspect.unwrap(value)
        elif isinstance(value, property) or type(value).__name__ == "cached_property":
            try:
                child = getattr(resource, name)
            except ImportError as error:
                # 5.9.0 cannot import its own `pipelines`: two of its type modules import each other.
                print(f"left out: {'.'.join((*path, name))}: {error}", file=sys.stderr)
                continue
            if type(child).__name__.endswith("Resource"):
                yield from endpoints(child, (*path, name))


def request_of(method: Any) -> tuple[str, str, list[str], str | None]:
    """What one endpoint method sends, read from its source: (verb, path, query parameters, type of the parameters)."""
    tree = ast.parse("if True:\n" + inspect.getsource(method))
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Attribute) and call.func.attr in VERBS and ast.unparse(call.func.value) == "self":
            verb = VERBS[call.func.attr]
            for keyword in call.keywords:
                if keyword.arg == "method" and isinstance(keyword.value, ast.Constant):
                    verb = str(keyword.value.value).upper()
            return verb, _path(call.args[0]), _query(call), _params_type(call)
    raise ValueError(f"{method.__qualname__} sends no request")


def _path(node: ast.expr) -> str:
    """The template of a path: a constant, alone or as the first argument of `path_template("...", ...)`."""
    texts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return next(text for text in texts if text.startswith("/"))


def _query(call: ast.Call) -> list[str]:
    for node in ast.walk(call):
        if isinstance(node, ast.keyword) and node.arg == "query":
            return [k.value for k in _first_dict(node.value).keys if isinstance(k, ast.Constant)]
    return []


def _first_dict(node: ast.expr) -> ast.Dict:
    return next((n for n in ast.walk(node) if isinstance(n, ast.Dict)), ast.Dict([], []))


def _params_type(call: ast.Call) -> str | None:
    """The TypedDict that names the parameters on the wire, as written in the source (`module.Class`)."""
    for node in ast.walk(call):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "maybe_transform":
            texts = [ast.unparse(argument) for argument in node.args]
            return next((text for text in texts if re.fullmatch(r"\w+_params\.\w+", text)), None)
    return None


def _aliases(method: Any, params_type: str | None) -> dict[str, str]:
    if params_type is None:
        return {}
    module, name = params_type.split(".")
    fields: dict[str, Any] = getattr(getattr(method.__globals__[module], name), "__annotations__", {})
    hints = typing.get_type_hints(getattr(method.__globals__[module], name), include_extras=True) if fields else {}
    return {field: alias for field, hint in sorted(hints.items()) if (alias := alias_of(hint))}


def _required(method: Any, parameters: list[inspect.Parameter]) -> list[str]:
    """Parameters every variant of the method demands. Overloaded methods have a `required_args` decorator instead."""
    tree = ast.parse("if True:\n" + inspect.getsource(method))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "required_args":
            variants = [set(ast.literal_eval(argument)) for argument in node.args]
            return [p.name for p in parameters if all(p.name in variant for variant in variants)]
    return [p.name for p in parameters if p.default is inspect.Parameter.empty]


def _documentation(method: Any) -> str:
    """The docstring; an overloaded method has it on its variants, the first of which speaks for all."""
    variants = (method, *typing.get_overloads(method))
    return next((variant.__doc__ for variant in variants if variant.__doc__), "")


def entry(name: str, method: Any) -> dict[str, Any]:
    """The line of one endpoint method: its MCP tool and what a call of it would send."""
    verb, path, query, params_type = request_of(method)
    prose, texts = split_docstring(_documentation(method))
    hints = typing.get_type_hints(method, include_extras=True)
    parameters = [p for p in inspect.signature(method).parameters.values() if p.name not in TRANSPORT_PARAMETERS]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {p.name: described(schema_of(hints[p.name]), texts.get(p.name)) for p in parameters},
    }
    if required := _required(method, parameters):
        schema["required"] = required
    known = {p.name for p in parameters}
    http: dict[str, Any] = {"verb": verb, "path": path}
    if query := [q for q in query if q in known]:
        http["query"] = query
    if alias := {field: wire for field, wire in _aliases(method, params_type).items() if field in known}:
        http["alias"] = alias
    tool = {
        "name": name,
        # Of a method without a docstring, the endpoint is all that is known.
        "description": prose or f"{verb} {path}",
        "inputSchema": schema,
        "annotations": ANNOTATIONS[verb],
    }
    return {"tool": tool, "http": http}


def catalog(client: Any) -> bytes:
    """The whole catalog of `client` as gzipped JSON lines, sorted by name; same client, same bytes."""
    entries = sorted((entry(name, method) for name, method in endpoints(client)), key=lambda e: e["tool"]["name"])
    lines = "".join(json.dumps(e, ensure_ascii=False, separators=(",", ":")) + "\n" for e in entries)
    # No time and no file name in the header, so that the bytes depend on nothing but the client.
    return gzip.compress(lines.encode(), compresslevel=9, mtime=0)


def main() -> int:
    cloudflare = importlib.import_module("cloudflare")
    made = catalog(cloudflare.Cloudflare(api_token="none"))
    text = gzip.decompress(made)
    count = len(text.splitlines())
    print(f"cloudflare {cloudflare.__version__}: {count} tools, {len(text):,} bytes, {len(made):,} gzipped")
    if "--check" in sys.argv:
        # Compared unpacked: zlib may pack the same text differently from one build of it to the next.
        if not TARGET.exists() or gzip.decompress(TARGET.read_bytes()) != text:
            print(f"{TARGET} is not what this script makes", file=sys.stderr)
            return 1
        return 0
    TARGET.write_bytes(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
