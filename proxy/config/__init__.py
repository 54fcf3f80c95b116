"""upstreams.yaml, or any client's `mcpServers` JSON -> frozen `Settings`. Errors name file, line and key.

`find` says which file it is, `load` reads it; `settings` holds the types everybody else sees.
YAML is strict (an unknown key is an error with the nearest valid one), because a typo must not silently change what
is reachable; JSON files and any `mcpServers` block are lenient, because they were written for another client.
What is wrong with one server (an unset variable, say) becomes that server's `problem` and stops nobody else.
"""

from proxy.config.environment import OWN_TOKEN, Expansion, child_environment, expand
from proxy.config.exposure import others_may
from proxy.config.loader import find, load, places, state_file, user_file
from proxy.config.oauth_block import SCOPE
from proxy.config.settings import (
    RISKS,
    AuditConfig,
    Decision,
    GuardConfig,
    LockPolicy,
    Mode,
    OAuthConfig,
    Profile,
    Risk,
    ServerConfig,
    Settings,
    ToolSearchConfig,
    Toolset,
    Transport,
    Validate,
)

__all__ = [
    "OWN_TOKEN",
    "RISKS",
    "SCOPE",
    "AuditConfig",
    "Decision",
    "Expansion",
    "GuardConfig",
    "LockPolicy",
    "Mode",
    "OAuthConfig",
    "Profile",
    "Risk",
    "ServerConfig",
    "Settings",
    "ToolSearchConfig",
    "Toolset",
    "Transport",
    "Validate",
    "child_environment",
    "expand",
    "find",
    "load",
    "others_may",
    "places",
    "state_file",
    "user_file",
]
