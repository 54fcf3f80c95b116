"""Who may see and call what, and what is written down of it: but for clean texts, nothing here runs unless configured.

`base` (with `lock` and `clean`) makes what exists for anyone, `scope` what a caller sees of it; `gate` is asked at each
stage of a call (`dispatch`) and of every other request (`forward`).
"""

from proxy.guard.approval import Permit
from proxy.guard.audit import Ended
from proxy.guard.base import Base
from proxy.guard.gate import Gate, needed
from proxy.guard.scope import DEFAULT, Scopes

__all__ = ["DEFAULT", "Base", "Ended", "Gate", "Permit", "Scopes", "needed"]
