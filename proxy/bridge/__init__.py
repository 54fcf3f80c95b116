"""The three tools: what the client is shown of them, and the answers of search and describe.

Pure functions over a view of the catalog, its index and the settings; `server` routes to them, `dispatch` makes the
calls. Every text names the three tools as the settings do.
"""

from proxy.bridge.answers import listed_topics, room_in
from proxy.bridge.describing import describe_answer
from proxy.bridge.searching import says_destructive, search_answer
from proxy.bridge.tools import bridge_tools, guidance_lengths, instructions, placed_tools

__all__ = [
    "bridge_tools",
    "describe_answer",
    "guidance_lengths",
    "instructions",
    "listed_topics",
    "placed_tools",
    "room_in",
    "says_destructive",
    "search_answer",
]
