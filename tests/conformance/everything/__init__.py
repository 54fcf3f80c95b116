"""An MCP server that offers everything the official conformance suite calls for, in both protocol eras."""
