"""The demo: a few small servers and one with 2,728 tools. Needs no configuration, no keys and no network."""

import sys

from proxy import __version__
from proxy.config import ServerConfig, Settings

DESCRIPTIONS = {
    "calc": "arithmetic and statistics",
    "clock": "the time in any time zone",
    "cloudflare": "the Cloudflare API: DNS, zones, Workers, R2, firewall rules; a demo that sends nothing",
    "files": "read and search the proxy's own source",
    "notes": "short notes with tags, kept in memory",
}


def demo_settings() -> Settings:
    """What `narrow-waist --demo` serves: every server of this package, over stdio."""
    servers = tuple(
        ServerConfig(
            key=key,
            transport="stdio",
            command=sys.executable,
            # -P: a folder named `proxy` where the person happens to be must not be taken for this package.
            args=("-P", "-m", f"proxy.demo.{key}"),
            description=description,
            launch_hash=f"demo-{key}-{__version__}",
        )
        for key, description in sorted(DESCRIPTIONS.items())
    )
    # Long enough for all of them to start, so that the first listing anyone sees is the whole one.
    return Settings(servers=servers, first_list_wait=10.0)
