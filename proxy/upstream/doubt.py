"""Doubt: an answer may have meant that the server has forgotten our session, and only the server can tell."""

import anyio

from proxy.errors import RpcError, UpstreamFailure
from proxy.upstream.peer import METHOD_NOT_FOUND
from proxy.upstream.session import Session

PATIENCE = 5.0
"""Seconds that the server has to answer."""


class Doubt:
    """Whether the session of one connection can be relied on."""

    def __init__(self) -> None:
        self.raised = False
        self._asking = anyio.Lock()

    def arise(self) -> None:
        """An answer was such that it has to be asked."""
        self.raised = True

    async def confirmed(self, session: Session) -> bool:
        """Ask the server, once for all that wait: whether the session is lost."""
        async with self._asking:
            if not self.raised:
                return False
            self.raised = False
            try:
                await session.request("ping", timeout=PATIENCE)
            except RpcError as error:
                return error.code != METHOD_NOT_FOUND
            except UpstreamFailure:
                return True
            finally:
                self.raised = False
            return False
