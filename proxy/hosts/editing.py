"""Editing a host's file as text: set or remove one entry, and leave every other byte as it is.

`editor(file name)` gives what the format takes. Every edit is checked by parsing its outcome: if anything
but the entry has changed, the file is left alone and `HostFileError` says so. Pure: text in, text out.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from proxy.hosts import json_text, toml_text, yaml_text
from proxy.hosts.problem import HostFileError


@dataclass(frozen=True)
class Editor:
    """One file format."""

    name: str
    parse: Callable[[str], Any]
    """The file's data; raises HostFileError with the place where it is broken."""
    _set: Callable[[str, Sequence[str], str, Any], str]
    _remove: Callable[[str, Sequence[str], str], str]

    def set(self, text: str, path: Sequence[str], key: str, value: Mapping[str, Any]) -> str:
        """`text` with `value` at `path` + `key`; missing parents are made, an entry that is there is replaced.

        Raises:
            HostFileError: the file is broken, something on the way is no mapping, or more than the entry would change.
        """
        wanted = copy.deepcopy(self._block(text, path, create=True))
        wanted[1][key] = dict(value)
        return self._checked(self._set(text, path, key, value), wanted[0])

    def remove(self, text: str, path: Sequence[str], key: str) -> str:
        """`text` without the entry `key` below `path`; unchanged where there is none.

        Raises:
            HostFileError: as for `set`.
        """
        wanted = copy.deepcopy(self._block(text, path, create=False))
        if key not in wanted[1]:
            return text
        del wanted[1][key]
        return self._checked(self._remove(text, path, key), wanted[0], emptied=path if not wanted[1] else None)

    def entries(self, text: str, path: Sequence[str]) -> dict[str, Any]:
        """What stands below `path`; empty where nothing does. Raises HostFileError."""
        return self._block(text, path, create=False)[1]

    def _block(self, text: str, path: Sequence[str], *, create: bool) -> tuple[dict[str, Any], dict[str, Any]]:
        """The data of the file and its mapping at `path`."""
        parsed: Any = self.parse(text)
        root: Any = dict[str, Any]() if parsed is None else parsed
        block = _mapping(root, "the top")
        for number, part in enumerate(path, 1):
            inner = block.get(part)
            if inner is None:
                inner = dict[str, Any]()
                if create:
                    block[part] = inner
            block = _mapping(inner, ".".join(path[:number]))
        return root, block

    def _checked(self, text: str, wanted: Any, *, emptied: Sequence[str] | None = None) -> str:
        try:
            got = self.parse(text)
        except HostFileError as error:
            raise HostFileError(f"this file cannot be edited safely ({error}); edit it by hand") from None
        if emptied is not None:  # a format may drop, or keep as null, a block that has become empty
            got, wanted = _without_empty(got, emptied), _without_empty(wanted, emptied)
        if (got or {}) != wanted:
            raise HostFileError("this file cannot be edited without changing something else; edit it by hand")
        return text


def _mapping(value: object, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise HostFileError(f"expected a mapping at {place}, found {type(value).__name__}")
    return cast(dict[str, Any], value)


def _without_empty(data: Any, path: Sequence[str]) -> Any:
    data = copy.deepcopy(data or dict[str, Any]())
    block: Any = data
    for part in path[:-1]:
        block = block.get(part) or dict[str, Any]()
    if not block.get(path[-1]):
        block.pop(path[-1], None)
    return data


_EDITORS = {
    "json": Editor("json", json_text.parse, json_text.set_member, json_text.remove_member),
    "toml": Editor("toml", toml_text.parse, toml_text.set_table, toml_text.remove_table),
    "yaml": Editor("yaml", yaml_text.parse, yaml_text.set_entry, yaml_text.remove_entry),
}


def editor(file_name: str) -> Editor:
    """The editor for a file by its suffix (.json, .jsonc, .toml, .yaml, .yml); raises HostFileError for others."""
    suffix = file_name.rpartition(".")[2].lower()
    suffix = {"jsonc": "json", "yml": "yaml"}.get(suffix, suffix)
    if suffix not in _EDITORS:
        raise HostFileError(f"{file_name}: expected a .json, .toml or .yaml file")
    return _EDITORS[suffix]
