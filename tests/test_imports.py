"""The shape of the house: imports point downwards, and heavy packages are loaded only where they are used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import proxy

ROOT = Path(next(iter(proxy.__path__)))

LAYERS = [
    {"__main__"},
    {"cli"},
    {"app"},
    {"configured"},
    {"upkeep"},
    {"view"},
    {"serving", "upstream", "demo"},
    {"server"},
    {"bridge", "counter", "dispatch", "forward", "reload", "semantics"},
    {"listing", "search", "arguments", "guard"},
    {"catalog", "eager", "signature", "offers"},
    {"tool", "text", "config", "tokens", "masking"},
    {"errors", "hosts", "caller", "wire", "memory", "step", "private"},
]
"""The rooms of the house from the top down. A room imports from itself, from its own layer and from those below."""

NARROWER = {
    "upstream": {
        "catalog",
        "offers",
        "tool",
        "config",
        "text",
        "masking",
        "caller",
        "errors",
        "wire",
        "step",
        "private",
    },
    "demo": {"config"},
    "hosts": {"errors"},
}
"""Rooms beside the stairs, which may import less than their place allows."""

STRANGERS = {("bridge", "dispatch"), ("dispatch", "bridge")}
"""Rooms of one layer that must never know each other: a bridge name is unwrapped below them and routed above."""

ONLY_IMPORTED_BY = {"upstream": {"app", "configured", "cli"}, "demo": {"app", "cli"}, "app": {"cli", "__main__"}}

MAY_IMPORT_MCP = {"server", "serving", "upstream", "demo"}
PURE = {
    "arguments", "bridge", "caller", "catalog", "config", "eager", "errors", "hosts", "listing", "masking", "offers",
    "search", "signature", "text", "tokens", "tool", "wire",
}  # fmt: skip


def room(module: str) -> str:
    """The room of a module's full name: `proxy.upstream.fleet` -> upstream; the package itself has none."""
    return module.split(".")[1] if "." in module else ""


def imports_of(path: Path) -> set[str]:
    """The full names of all modules that a file imports; `from proxy import x` is `proxy.x` where x is a room."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module and not node.level, f"{path}: relative import; the house writes whole names"
            names.add(node.module)
            if node.module == "proxy":
                rooms = {entry.stem for entry in ROOT.iterdir()}
                names |= {f"proxy.{alias.name}" for alias in node.names if alias.name in rooms}
    return names


def rooms_importing(*packages: str) -> set[str]:
    """The rooms that import one of these packages, or a module of them."""
    return {room_of(path) for path in files() if {name.split(".")[0] for name in imports_of(path)} & set(packages)}


def files() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def room_of(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem.replace("__init__", "")


def edges() -> set[tuple[str, str]]:
    """(importing room, imported room) all over the package."""
    found = {
        (room_of(path), room(module))
        for path in files()
        for module in imports_of(path)
        if module.split(".")[0] == "proxy"
    }
    return {(above, below) for above, below in found if above and below and above != below}


def layer(name: str) -> int:
    places = [number for number, rooms in enumerate(LAYERS) if name in rooms]
    assert places, f"proxy/{name} has no place in the house yet: give it a layer in LAYERS (and in the design)"
    return places[0]


def test_every_import_points_downwards() -> None:
    upward = [f"{a} imports {b}" for a, b in sorted(edges()) if layer(a) > layer(b)]
    assert not upward


def test_rooms_with_narrower_limits_keep_to_them() -> None:
    outside = [f"{a} imports {b}" for a, b in sorted(edges()) if b not in NARROWER.get(a, {b})]
    assert not outside
    assert not edges() & STRANGERS


def test_rooms_that_belong_to_one_place_are_imported_there_only() -> None:
    elsewhere = [f"{a} imports {b}" for a, b in sorted(edges()) if a not in ONLY_IMPORTED_BY.get(b, {a})]
    assert not elsewhere


def test_no_two_rooms_import_each_other_directly_or_in_a_circle() -> None:
    remaining = edges()
    while remaining:
        leaves = {below for _, below in remaining} - {above for above, _ in remaining}
        assert leaves, f"a circle of imports: {sorted(remaining)}"
        remaining = {(above, below) for above, below in remaining if below not in leaves}


def test_only_the_two_sides_of_the_wire_import_mcp() -> None:
    assert rooms_importing("mcp", "mcp_types") <= MAY_IMPORT_MCP


def test_pure_rooms_need_no_event_loop() -> None:
    assert not rooms_importing("anyio", "asyncio") & PURE


def test_imports_stand_at_the_top_except_on_the_command_line() -> None:
    """`--help` must not wait for the protocol's packages, so cli alone imports where it needs."""
    for path in files():
        if room_of(path) in {"cli", "__main__"}:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        inner = [
            node.lineno
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            for node in ast.walk(function)
            if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        assert not inner, f"{path}: imports inside functions, lines {inner}"


RUN = """
import sys
sys.argv = ["narrow-waist", sys.argv[1]]
from proxy.cli import main
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
print(sorted({"mcp", "pydantic", "numpy", "tiktoken"} & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_load_nothing_heavy(option: str) -> None:
    command = [sys.executable, "-P", "-c", RUN, option]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "[]")
    assert done.stdout
