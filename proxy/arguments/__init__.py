"""What models really send -> the arguments that are sent on, or a refusal that teaches.

`unwrap` (through `tool_call`) and `direct` (a tool called by its name) make a `Request`: a name and the readings of
its arguments, the literal one first. `choose` takes the first reading that fits the tool's schema. A value is never
altered: a reading moves or decodes whole values, and only where what was sent literally does not fit.
"""

from proxy.arguments.choose import choose, taught
from proxy.arguments.unwrap import Request, direct, unwrap
from proxy.arguments.validation import Validators

__all__ = ["Request", "Validators", "choose", "direct", "taught", "unwrap"]
