"""Upstream with a long job that reports progress and honours cancellation.

`job(steps=20, step_ms=200)` sends notifications/progress when a progressToken came along, stops on
notifications/cancelled for its request id. `seen` returns {"progress_tokens": n, "cancelled": [...], "finished": n}.
Seen in: PrefectHQ/fastmcp#4124, lynnswap/XcodeMCPKit#210 (client's id forwarded instead of the upstream's id),
IBM/mcp-context-forge#1983, topcheer/ggcode#2490, anomalyco/opencode#21701, typescript-sdk#2250, metamcp#155.
Right behaviour: with a token from the client, its progress arrives under the CLIENT's token (mapped, increasing), so
clients that reset their 60 s time-out on progress stay alive; when the client cancels or disconnects, the upstream
gets notifications/cancelled with the UPSTREAM request id within 1 s; the proxy's own time-out also sends it;
initialize is never cancelled. A job longer than 60 s finishes if the configured time-out allows.
"""

import json
import time

from _raw import NoReply, Server, serve, text, tool

seen = {"progress_tokens": 0, "cancelled": [], "finished": 0}


class S(Server):
    def answer(self, msg, peer):
        self.rid = msg["id"]
        msg.setdefault("params", {})["_rid"] = msg["id"]
        super().answer(msg, peer)


def cancelled(peer, rid):
    return any(m == "notifications/cancelled" and p.get("requestId") == rid for m, p in peer.notifications)


def call(name, args, params, peer):
    if name == "seen":
        seen["cancelled"] = [p.get("requestId") for m, p in peer.notifications if m == "notifications/cancelled"]
        return text(json.dumps(seen))
    a, rid = args or {}, params["_rid"]
    token = (params.get("_meta") or {}).get("progressToken")
    seen["progress_tokens"] += token is not None
    steps = int(a.get("steps", 20))
    for i in range(steps):
        if cancelled(peer, rid):
            raise NoReply
        if token is not None:
            peer.notify(
                "notifications/progress",
                {"progressToken": token, "progress": i + 1, "total": steps, "message": f"step {i + 1}"},
            )
        time.sleep(int(a.get("step_ms", 200)) / 1000)
    seen["finished"] += 1
    return text("job done")


J = {"type": "object", "properties": {"steps": {"type": "integer"}, "step_ms": {"type": "integer"}}}
serve(S([tool("job", "Long job.", J), tool("seen", "What was observed.")], call, name="longjob"), threaded=True)
