"""Resources, resource templates and prompts of all servers under names a client can use. Pure.

Resource URIs stay as they are: a client may have them from anywhere (a tool's result, a person). Only where two
servers list the same URI does the later one's get a prefix. Prompts are named like tools, `<server>__<prompt>`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast
from urllib.parse import quote

from proxy.tool import public_name

PREFIX = "narrow-waist:"
"""Scheme of a URI that is prefixed with its server's key: `narrow-waist:<server>/<uri>`."""

Raw = Mapping[str, Any]
Kind = Literal["resource", "prompt", "completion", "subscription"]
KINDS: Mapping[str, Kind] = {
    "resources/read": "resource",
    "prompts/get": "prompt",
    "completion/complete": "completion",
    "resources/subscribe": "subscription",
}
"""The requests that have a target among what servers offer."""


@dataclass(frozen=True)
class Offer:
    """What one server offers beside tools; raw dicts as they came."""

    server: str
    resources: tuple[Raw, ...] = ()
    templates: tuple[Raw, ...] = ()
    prompts: tuple[Raw, ...] = ()


class Offers:
    """All servers' offers; immutable."""

    def __init__(self, offers: Iterable[Offer] = ()) -> None:
        self._offers = tuple(sorted(offers, key=lambda o: o.server))

    def __iter__(self) -> Iterator[Offer]:
        return iter(self._offers)

    def of(self, keep: Callable[[str], bool]) -> "Offers":
        """The offers of the servers whose keys `keep` accepts, as if there were no others."""
        return Offers(offer for offer in self._offers if keep(offer.server))

    @cached_property
    def resources(self) -> tuple[dict[str, Any], ...]:
        """Every resource, by server key and then as listed; a URI seen before is prefixed."""
        listed: list[dict[str, Any]] = []
        for offer in self._offers:
            for raw in offer.resources:
                uri: str = raw["uri"]
                mine = self._listed.get(uri) == offer.server
                listed.append(dict(raw) if mine else {**raw, "uri": prefixed(offer.server, uri)})
        return tuple({r["uri"]: r for r in reversed(listed)}.values())[::-1]

    @cached_property
    def templates(self) -> tuple[dict[str, Any], ...]:
        """Every resource template; one seen before is prefixed."""
        listed: dict[str, dict[str, Any]] = {}
        for offer in self._offers:
            for raw in offer.templates:
                template: str = raw["uriTemplate"]
                if template in listed:
                    template = prefixed(offer.server, template)
                listed.setdefault(template, {**raw, "uriTemplate": template})
        return tuple(listed.values())

    @cached_property
    def prompts(self) -> tuple[dict[str, Any], ...]:
        """Every prompt under its public name, in the order of these."""
        listed = {
            public_name(o.server, raw["name"]): raw for o in reversed(self._offers) for raw in reversed(o.prompts)
        }
        return tuple({**raw, "name": name} for name, raw in sorted(listed.items()))

    @cached_property
    def _listed(self) -> Mapping[str, str]:
        """Listed URI -> the first server that lists it."""
        owners: dict[str, str] = {}
        for offer in self._offers:
            for raw in offer.resources:
                owners.setdefault(raw["uri"], offer.server)
        return owners

    @cached_property
    def _patterns(self) -> tuple[tuple[re.Pattern[str], str], ...]:
        return tuple((_pattern(raw["uriTemplate"]), o.server) for o in self._offers for raw in o.templates)

    def owner(self, uri: str) -> tuple[str, str] | None:
        """(server, URI as that server knows it), or None.

        A prefixed URI goes to its server, a listed one to the first that lists it, any other to the one server
        whose template matches; where several match, nobody is guessed.
        """
        if uri.startswith(PREFIX):
            for offer in self._offers:
                start = prefixed(offer.server, "")
                if uri.startswith(start):
                    return offer.server, uri[len(start) :]
        if (server := self._listed.get(uri)) is not None:
            return server, uri
        matching = {server for pattern, server in self._patterns if pattern.fullmatch(uri)}
        return (matching.pop(), uri) if len(matching) == 1 else None

    def known_as(self, server: str, uri: str) -> str | None:
        """The URI under which a client reaches that resource of `server`; None where its server is not among these."""
        if all(offer.server != server for offer in self._offers):
            return None
        return uri if self.owner(uri) == (server, uri) else prefixed(server, uri)

    def template_owner(self, template: str) -> tuple[str, str] | None:
        """(server, template as that server knows it) of a listed template, or None."""
        for offer in self._offers:
            start = prefixed(offer.server, "")
            plain = template.removeprefix(start)
            if any(raw["uriTemplate"] == plain for raw in offer.templates):
                return offer.server, plain
        return None

    def prompt(self, name: str) -> tuple[str, str] | None:
        """(server, raw name) of a prompt by its public name, by `server.prompt`, or by a raw name only one has."""
        bare: list[tuple[str, str]] = []
        for offer in self._offers:
            for raw in offer.prompts:
                key: str = raw["name"]
                if name in (public_name(offer.server, key), f"{offer.server}.{key}", f"{offer.server}__{key}"):
                    return offer.server, key
                if key == name:
                    bare.append((offer.server, key))
        return bare[0] if len(bare) == 1 else None

    def target(self, method: str, params: Raw) -> "Target | None":
        """What a request of a client means: a resource to read or follow, a prompt to get, a reference to complete."""
        if method in ("resources/read", "resources/subscribe"):
            uri: str = params["uri"]
            return _target(KINDS[method], uri, self.owner(uri), lambda raw: {"uri": raw})
        if method == "prompts/get":
            name: str = params["name"]
            given = {"arguments": params["arguments"]} if params.get("arguments") is not None else {}
            return _target("prompt", name, self.prompt(name), lambda raw: {"name": raw, **given})
        given_ref = params.get("ref")
        ref: Raw = cast(Raw, given_ref) if isinstance(given_ref, Mapping) else {}
        is_prompt = ref.get("type") == "ref/prompt"
        key = "name" if is_prompt else "uri"
        wanted = str(ref.get(key))
        found = self.prompt(wanted) if is_prompt else self.template_owner(wanted) or self.owner(wanted)
        rest = {k: v for k, v in params.items() if k != "_meta"}
        return _target("completion", wanted, found, lambda raw: {**rest, "ref": {**ref, key: raw}})


@dataclass(frozen=True)
class Target:
    """Where a request goes that is not a call of a tool."""

    kind: Kind
    server: str
    name: str
    """Its name (of a resource its URI, of a completion what is completed) as the server knows it."""
    public_name: str
    """The same as the client knows it."""
    params: Raw
    """For the server."""


def _target(
    kind: Kind, wanted: str, found: tuple[str, str] | None, params: Callable[[str], dict[str, Any]]
) -> Target | None:
    return Target(kind, found[0], found[1], wanted, params(found[1])) if found is not None else None


def prefixed(server: str, uri: str) -> str:
    """`uri` under the name of its server, for URIs that several servers list."""
    return f"{PREFIX}{quote(server, safe='')}/{uri}"


def _pattern(template: str) -> re.Pattern[str]:
    """What a URI template (RFC 6570) can expand to, as far as telling servers apart needs it."""
    parts: list[str] = []
    for part in re.split(r"(\{[^{}]*\})", template):
        if not part.startswith("{"):
            parts.append(re.escape(part))
        elif part[1:2] in "+#" or part.endswith("*}"):
            parts.append(".*")
        elif part[1:2] in "?&":
            parts.append(r"(?:[?&].*)?")
        else:
            parts.append("[^/?#]+")
    return re.compile("".join(parts), re.DOTALL)
