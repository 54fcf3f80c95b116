"""A demo server: a folder, to read. `python -m proxy.demo.files [FOLDER]` (else this package's own source)."""

import sys
from pathlib import Path
from typing import Annotated

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

import proxy

server = MCPServer("files", version="1.0.0", description="read and search one folder")
ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else next(iter(proxy.__path__))).resolve()
_READ = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
_MAX_READ, _MAX_MATCHES = 20_000, 50

Relative = Annotated[str, Field(description="Path relative to the served folder, for example demo/files.py")]


def inside(path: str) -> Path:
    """`path` below the served folder; raises ToolError for one that leads out of it."""
    resolved = (ROOT / path).resolve()
    if not resolved.is_relative_to(ROOT):
        raise ToolError(f"{path!r} is outside the served folder")
    return resolved


@server.tool(annotations=_READ)
def list_files(path: Relative = ".") -> list[str]:
    """List what is in a folder; folders end in a slash."""
    folder = inside(path)
    if not folder.is_dir():
        raise ToolError(f"{path!r} is not a folder")
    return sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in folder.iterdir())


@server.tool(annotations=_READ)
def read_file(path: Relative) -> str:
    """Read a text file; long ones are cut at 20,000 characters."""
    file = inside(path)
    if not file.is_file():
        raise ToolError(f"{path!r} is not a file; list_files tells which there are")
    return file.read_text(encoding="utf-8", errors="replace")[:_MAX_READ]


@server.tool(annotations=_READ)
async def search_files(
    text: Annotated[str, Field(description="Text to look for, whatever its case")], context: Context
) -> list[str]:
    """Find the lines of all Python files that contain a text, as `path:line: text`; reports progress per file."""
    paths = sorted(ROOT.rglob("*.py"))
    matches: list[str] = []
    for number, path in enumerate(paths, start=1):
        for count, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
            if text.casefold() in line.casefold():
                matches.append(f"{path.relative_to(ROOT)}:{count}: {line.strip()}")
        await context.report_progress(number, len(paths), str(path.relative_to(ROOT)))
    return matches[:_MAX_MATCHES]


if __name__ == "__main__":
    server.run()
