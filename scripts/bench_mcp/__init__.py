"""The bench: MCP proxies side by side with a direct connection, in alternating rounds of one run.

Ratios of one run survive a busy machine, times do not. Standard library only, upstream and client too, so that what
is measured is the proxy. `scripts/bench --help` says how to run it, docs/performance.md what came out.
"""
