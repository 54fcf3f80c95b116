"""The demo's large catalog: what is shipped, and that its generator reads a client as it should."""

import gzip
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Required

import jsonschema_rs
import make_demo_catalog
import pytest
from demo_catalog_schema import schema_of, split_docstring
from make_demo_catalog import TARGET, catalog, entry
from typing_extensions import TypedDict


@pytest.fixture(scope="module")
def entries() -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(TARGET.read_bytes()).splitlines()]


def test_the_catalog_has_the_size_of_the_cloudflare_api(entries: list[dict[str, Any]]) -> None:
    assert len(entries) >= 2600
    assert len(TARGET.read_bytes()) < 1_000_000


def test_names_are_unique_sorted_and_plain(entries: list[dict[str, Any]]) -> None:
    names = [e["tool"]["name"] for e in entries]
    assert names == sorted(set(names))
    assert all(re.fullmatch(r"[a-z0-9_]+", name) for name in names)
    assert {"dns_records_create", "zones_list", "kv_namespaces_values_update"} <= set(names)


def test_every_tool_has_a_description_annotations_and_a_valid_object_schema(entries: list[dict[str, Any]]) -> None:
    for tool in (e["tool"] for e in entries):
        assert tool["description"] and not tool["description"].startswith("Args:"), tool["name"]
        assert tool["inputSchema"]["type"] == "object"
        assert "readOnlyHint" in tool["annotations"]
        assert set(tool["inputSchema"].get("required", [])) <= set(tool["inputSchema"]["properties"])
        jsonschema_rs.meta.validate(tool["inputSchema"])


def test_every_part_of_a_path_is_a_parameter(entries: list[dict[str, Any]]) -> None:
    computed = {"account_or_zone", "account_or_zone_id"}
    for e in entries:
        assert e["http"]["path"].startswith("/")
        assert set(re.findall(r"{(\w+)}", e["http"]["path"])) - computed <= set(e["tool"]["inputSchema"]["properties"])


def test_inner_types_are_spelled_out(entries: list[dict[str, Any]]) -> None:
    tool = next(e["tool"] for e in entries if e["tool"]["name"] == "dns_records_list")
    assert tool["inputSchema"]["properties"]["comment"]["properties"]["exact"]["type"] == "string"
    assert tool["annotations"] == {"readOnlyHint": True}


def test_the_notice_is_there() -> None:
    assert "Apache License 2.0" in Path(TARGET.parent / "cloudflare.NOTICE").read_text(encoding="utf-8")


class Rule(TypedDict, total=False):
    expression: Required[str]
    """What the rule matches."""
    enabled: bool


class RulesResource:
    _post: Any

    def create(
        self, zone_id: str, *, kind: Literal["a", "b"], rules: Iterable[Rule] | None = None, page: int = 0
    ) -> Any:
        """
        Create rules.

        Args:
          zone_id: Identifier: of a zone
              that exists.

          extra_headers: Send extra headers
        """
        return self._post(
            path_template("/zones/{zone_id}/rules", zone_id=zone_id),  # noqa: F821
            body=maybe_transform({"kind": kind, "rules": rules}, None),  # noqa: F821
            options=make_request_options(query=maybe_transform({"page": page}, None)),  # noqa: F821
        )


class Client:
    @property
    def rules(self) -> RulesResource:
        return RulesResource()


def test_a_method_becomes_a_tool_and_a_request() -> None:
    assert entry("rules_create", RulesResource.create) == {
        "tool": {
            "name": "rules_create",
            "description": "Create rules.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "zone_id": {"type": "string", "description": "Identifier: of a zone\nthat exists."},
                    "kind": {"type": "string", "enum": ["a", "b"]},
                    "rules": {
                        "anyOf": [
                            {
                                "type": "array",
                                "items": {
                                    "type": "object",
                                    "properties": {
                                        "expression": {"type": "string", "description": "What the rule matches."},
                                        "enabled": {"type": "boolean"},
                                    },
                                    "required": ["expression"],
                                },
                            },
                            {"type": "null"},
                        ]
                    },
                    "page": {"type": "integer"},
                },
                "required": ["zone_id", "kind"],
            },
            "annotations": {"readOnlyHint": False},
        },
        "http": {"verb": "POST", "path": "/zones/{zone_id}/rules", "query": ["page"]},
    }


def test_the_same_client_gives_the_same_bytes() -> None:
    assert catalog(Client()) == catalog(Client())
    assert json.loads(gzip.decompress(catalog(Client())))["tool"]["name"] == "rules_create"


def test_what_has_no_known_type_may_be_anything() -> None:
    assert schema_of(object()) == {}
    assert schema_of(str | object) == {}


def test_a_recursive_type_ends() -> None:
    assert "object" in json.dumps(schema_of(Tree))


class Tree(TypedDict):
    children: "list[Tree]"


def test_a_docstring_of_arguments_alone_has_no_prose() -> None:
    assert split_docstring("\n    Args:\n      name: A name.\n    ") == ("", {"name": "A name."})


def test_a_method_that_sends_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="sends no request"):
        make_demo_catalog.request_of(Client.rules.fget)
