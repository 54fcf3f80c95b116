"""A demo server: notes, kept in memory for as long as it runs. `python -m proxy.demo.notes`"""

from dataclasses import dataclass
from typing import Annotated

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field


@dataclass(frozen=True)
class Note:
    """One note as the tools answer it."""

    id: int
    title: str
    text: str
    tags: list[str]


server = MCPServer("notes", version="1.0.0", description="short notes with tags")
_READ = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_notes: dict[int, Note] = {
    1: Note(1, "Shopping", "Oats, apples, coffee", ["home"]),
    2: Note(2, "Release checklist", "Changelog, tag, wheel, announcement", ["work"]),
}

Tags = Annotated[list[str], Field(description="Words to file the note under, for example ['work', 'ideas']")]
NoteId = Annotated[int, Field(description="The number of the note, as create and list answer it")]


@server.tool(annotations=ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False))
def create_note(
    title: Annotated[str, Field(description="One line that says what the note is about")],
    text: Annotated[str, Field(description="The note itself; plain text or Markdown")],
    tags: Tags | None = None,
) -> Note:
    """Create a note. Answers with the note and its number."""
    identifier = max(_notes, default=0) + 1
    _notes[identifier] = Note(identifier, title, text, tags or [])
    return _notes[identifier]


@server.tool(annotations=_READ)
def list_notes(tag: Annotated[str | None, Field(description="Only notes with this tag")] = None) -> list[Note]:
    """List all notes, oldest first, or those with one tag."""
    return [note for note in _notes.values() if tag is None or tag in note.tags]


@server.tool(annotations=_READ)
def search_notes(query: Annotated[str, Field(description="Text to look for in titles and notes")]) -> list[Note]:
    """Find notes whose title or text contains a text, whatever its case."""
    wanted = query.casefold()
    return [note for note in _notes.values() if wanted in f"{note.title}\n{note.text}".casefold()]


@server.tool(annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False))
def delete_note(id: NoteId) -> str:
    """Delete a note for good."""
    if id not in _notes:
        raise ToolError(f"There is no note {id}. There are: {sorted(_notes)}")
    return f"Deleted {_notes.pop(id).title!r}"


if __name__ == "__main__":
    server.run()
