"""A demo server: the time in the world's time zones. `python -m proxy.demo.clock`"""

from datetime import UTC, datetime, tzinfo
from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

server = MCPServer("clock", version="1.0.0", description="time zones")
_READ = ToolAnnotations(read_only_hint=True, open_world_hint=False)

Zone = Annotated[str, Field(description="IANA time zone name, for example Europe/Berlin or UTC")]


def zone(name: str) -> tzinfo:
    """The time zone `name`; raises ToolError with names that look alike."""
    if name.upper() == "UTC":  # also where the system has no time zone database
        return UTC
    if name not in available_timezones():
        city = name.rsplit("/", 1)[-1].replace(" ", "_").casefold()
        alike = sorted(known for known in available_timezones() if city in known.casefold())
        raise ToolError(f"Unknown time zone {name!r}. " + (f"Perhaps: {', '.join(alike[:5])}" if alike else ""))
    return ZoneInfo(name)


@server.tool(annotations=_READ)
def current_time(timezone: Zone = "UTC") -> str:
    """Tell the current date and time in a time zone, as ISO 8601 with its offset."""
    return datetime.now(zone(timezone)).isoformat(timespec="seconds")


@server.tool(annotations=_READ)
def convert_time(
    time: Annotated[str, Field(description="ISO 8601 date and time without offset, for example 2026-03-01T09:30")],
    from_timezone: Zone,
    to_timezone: Zone,
) -> str:
    """Convert a date and time from one time zone to another."""
    try:
        local = datetime.fromisoformat(time).replace(tzinfo=zone(from_timezone))
    except ValueError as error:
        raise ToolError(f"{error}. A right one: 2026-03-01T09:30") from error
    return local.astimezone(zone(to_timezone)).isoformat(timespec="minutes")


@server.tool(annotations=_READ)
def find_timezones(text: Annotated[str, Field(description="Part of a name: a city or a continent")]) -> list[str]:
    """Find time zone names that contain a text."""
    return sorted(name for name in available_timezones() if text.casefold() in name.casefold())


if __name__ == "__main__":
    server.run()
