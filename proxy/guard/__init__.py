"""Who may see and call what, and what is written down of it: nothing here runs unless it is configured.

`scope` and `lock` make the catalog that a caller sees; `gate` is asked by `dispatch` at each stage of a call.
"""

from proxy.guard.gate import Gate, Permit, needed
from proxy.guard.scope import Scopes

__all__ = ["Gate", "Permit", "Scopes", "needed"]
