"""Base: what exists for anyone. The servers' lists without what the tool lock withholds, and with clean texts.

Every view is made from it, so nothing that is withheld and no hidden character can reach a model on any way. What the
servers sent stays as it was in the fleet's own catalog: the lock's hashes are of that.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from proxy.catalog import Catalog, Server
from proxy.config import Settings
from proxy.guard.clean import cleaned, cleaned_raw
from proxy.guard.lock import Lock, about_hash
from proxy.offers import Offer, Offers, Raw
from proxy.tool import Tool

log = logging.getLogger(__name__)


class Base:
    """Makes the base of each catalog; what has not changed is the same object as before."""

    def __init__(self, settings: Settings, lock: Callable[[], Lock | None] = lambda: None) -> None:
        """`lock` gives the content of the lock file; None where there is no lock."""
        self._strict = settings.guard is not None and settings.guard.lock == "strict"
        self._cleans = settings.guard is None or settings.guard.clean
        self._lock = lock
        self._described = {s.key: s.description for s in settings.servers}
        self._servers: dict[str, tuple[Server, Lock | None, Server]] = {}
        self._offers: dict[str, tuple[Offer, Offer]] = {}
        self._catalog: tuple[Catalog, Lock | None, Catalog] | None = None
        self._all_offers: tuple[Offers, Lock | None, Offers] | None = None
        """What was sent, the lock, and what was made of them."""
        self._said: dict[tuple[str, str], tuple[str, ...]] = {}

    def follow(self, before: "Base") -> None:
        """Take the place of one by another configuration: what that has said is no news."""
        self._said = dict(before._said)

    def notes(self, server: str) -> tuple[str, ...]:
        """What was cleaned of a server's texts, or is not as it was approved; for `check` and the log."""
        return self._said.get(("tools", server), ()) + self._said.get(("offers", server), ())

    def catalog(self, catalog: Catalog) -> Catalog:
        """The tools that exist for anyone."""
        lock, known = self._lock(), self._catalog
        if known is None or known[0] is not catalog or known[1] is not lock:
            servers = [self._server(server, lock) for server in catalog.servers.values()]
            same = all(made is sent for made, sent in zip(servers, catalog.servers.values(), strict=True))
            known = self._catalog = (catalog, lock, catalog if same else Catalog(servers))
        return known[2]

    def withheld(self, catalog: Catalog) -> list[Tool]:
        """What the servers have and the lock withholds from everybody."""
        made = self.catalog(catalog).servers
        return [t for key, server in catalog.servers.items() for t in server.tools if t.name not in made[key].by_name]

    def offers(self, offers: Offers) -> Offers:
        """The resources and prompts that exist for anyone.

        The lock does not hold them one by one; in strict mode a server of which nothing was ever approved has none.
        """
        lock, known = self._lock(), self._all_offers
        if known is None or known[0] is not offers or known[1] is not lock:
            made: list[Offer] = []
            for offer in offers:
                if self._strict and lock is not None and offer.server not in lock.servers:
                    self._withhold(offer)
                else:
                    made.append(self._offer(offer))
            known = self._all_offers = (offers, lock, offers if made == list(offers) else Offers(made))
        return known[2]

    def _server(self, server: Server, lock: Lock | None) -> Server:
        known = self._servers.get(server.key)
        if known is not None and known[0] is server and known[1] is lock:
            return known[2]
        tools, notes, topic = list(server.tools), list[str](), server.topic
        if lock is not None:
            tools, topic, notes = self._locked(server, lock)
        if self._cleans and server.odd:
            for number, tool in enumerate(tools):
                if tool.name in server.odd:
                    tools[number], said = cleaned(tool)
                    if said:
                        notes.append(f"{tool.name}: {said}")
        self._tell("tools", server.key, notes)
        same = tools == list(server.tools) and topic == server.topic
        made = server if same else server.having(tools, server.denied, topic)
        self._servers[server.key] = (server, lock, made)
        return made

    def _withhold(self, offer: Offer) -> None:
        self._offers.pop(offer.server, None)
        if offer.resources or offer.templates or offer.prompts:
            step = f"approve the server with: narrow-waist lock --approve {offer.server}"
            self._tell("offers", offer.server, [f"its resources and prompts are withheld; {step}"])

    def _offer(self, offer: Offer) -> Offer:
        known = self._offers.get(offer.server)
        if known is not None and known[0] == offer:
            return offer if known[1] is known[0] else known[1]
        notes: list[str] = []

        def clean(kind: str, key: str, entries: Sequence[Raw]) -> tuple[Raw, ...]:
            made: list[Raw] = []
            for entry in entries:
                raw, said = cleaned_raw(entry)
                if said:
                    notes.append(f"{kind} {entry.get(key)}: {said}")
                made.append(raw)
            return tuple(made)

        made = offer
        if self._cleans:
            parts: dict[str, Any] = {
                "resources": clean("resource", "uri", offer.resources),
                "templates": clean("resource template", "uriTemplate", offer.templates),
                "prompts": clean("prompt", "name", offer.prompts),
            }
            made = replace(offer, **parts) if notes else offer
        self._tell("offers", offer.server, notes)
        self._offers[offer.server] = (offer, made)
        return made

    def _tell(self, kind: str, server: str, notes: Sequence[str]) -> None:
        """Keep what was found, and log it where it is news."""
        if tuple(notes) != self._said.get((kind, server), ()):
            for note in notes:
                log.warning("server %r: %s", server, note)
        self._said[kind, server] = tuple(notes)

    def _locked(self, server: Server, lock: Lock) -> tuple[list[Tool], str | None, list[str]]:
        """The tools that the lock lets through, the topic, and what is not as it was approved."""
        said = about_hash(*server.about)
        difference = lock.difference(server.key, server.tools, said)
        notes: list[str] = []
        if server.known and (difference.new or difference.changed):
            names = ", ".join((*difference.changed, *difference.new)[:8])
            if lock.exists:
                what = [f"{len(n)} {w}" for n, w in ((difference.changed, "changed"), (difference.new, "new")) if n]
                step = "withheld until approved" if self._strict else "not approved"
                notes.append(f"{' and '.join(what)} since the lock, {step}: {names}; see: narrow-waist lock --diff")
            else:
                step = ", withheld until then" if self._strict else ""
                what = f"none of its {len(difference.new)} tools is approved{step}"
                notes.append(f"{what}: {names}; approve all with: narrow-waist lock")
        off = {*difference.new, *difference.changed}
        tools = [replace(t, locked=True) if t.name not in off else t for t in server.tools]
        if self._strict:
            tools = [tool for tool in tools if tool.locked]
        topic = server.topic
        if server.about != (None, None) and not lock.approves_about(server.key, said):
            if lock.servers.get(server.key):  # else its tools are all new, which was said
                notes.append("what it says about itself has changed since the lock; see: narrow-waist lock --diff")
            topic = self._described.get(server.key) if self._strict else topic
        return tools, topic, notes
