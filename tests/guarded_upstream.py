"""An upstream without any SDK that offers what its folder says: FOLDER/offers.json; 2024-11-05, stdio.

    python guarded_upstream.py FOLDER

Keys of the file: `tools`, `resources`, `templates`, `prompts`, `instructions`, each as it is listed. A call answers
`ran NAME` (or FOLDER/answers/NAME.json, the result), a read `read URI`, a prompt `got NAME`, a completion `completed`.
FOLDER/ledger gets a line `method name` for each of these. The tool `change` puts FOLDER/next.json in the place of the
file and says so; the tool `touch` says that the resource `uri` has changed (`times` times), `flood` logs 0 to
`times` - 1, and `work` tells so much progress, each time with `pad` characters.

To a client that declares `elicitation` it has the tools of the key `asking` too, and asks it something before it lists
any; the ledger gets `answered result` or `answered error`.
"""

import json
import sys
from pathlib import Path
from typing import Any

LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
USES = ("tools/call", "resources/read", "prompts/get", "completion/complete")


def answer(folder: Path, offers: dict[str, Any], method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        capabilities: dict[str, Any] = {"tools": {}}
        if offers.get("resources") or offers.get("templates"):
            capabilities["resources"] = {"subscribe": True}
        if offers.get("prompts"):
            capabilities |= {"prompts": {}, "completions": {}}
        result = {"protocolVersion": "2024-11-05", "capabilities": capabilities}
        result["serverInfo"] = {"name": "guarded", "version": "1"}
        return result | ({"instructions": offers["instructions"]} if "instructions" in offers else {})
    if method in LISTS:
        key = LISTS[method]
        return {key: offers.get("templates" if key == "resourceTemplates" else key, [])}
    if method not in USES:
        return {}
    name = params.get("name") or params.get("uri") or json.dumps(params.get("ref"))
    with (folder / "ledger").open("a", encoding="utf-8") as ledger:
        ledger.write(f"{method} {name}\n")
    if method == "tools/call":
        chosen = folder / "answers" / f"{name}.json"
        if chosen.exists():
            return json.loads(chosen.read_text(encoding="utf-8"))
        return {"content": [{"type": "text", "text": f"ran {name}"}]}
    if method == "resources/read":
        return {"contents": [{"uri": name, "text": f"read {name}"}]}
    if method == "prompts/get":
        return {"messages": [{"role": "user", "content": {"type": "text", "text": f"got {name}"}}]}
    return {"completion": {"values": ["completed"]}}


def say(method: str, **params: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}) + "\n")


def act(folder: Path, name: object, arguments: dict[str, Any], token: object) -> None:
    if name == "change":
        (folder / "next.json").replace(folder / "offers.json")
        for kind in ("tools", "resources", "prompts"):
            say(f"notifications/{kind}/list_changed")
    elif name == "touch":
        for _ in range(arguments.get("times", 1)):
            say("notifications/resources/updated", uri=arguments["uri"])
    elif name == "flood":
        for number in range(arguments["times"]):
            say("notifications/message", level="info", data=number)
    elif name == "work":
        for number in range(arguments["times"]):
            say("notifications/progress", progressToken=token, progress=number, message="x" * arguments["pad"])


def main() -> None:
    folder = Path(sys.argv[1])
    can_be_asked, waiting = False, None
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "initialize":
            can_be_asked = "elicitation" in message["params"].get("capabilities", {})
        if message.get("id") == "question":
            with (folder / "ledger").open("a", encoding="utf-8") as ledger:
                ledger.write(f"answered {'error' if 'error' in message else 'result'}\n")
            message = waiting
        if "id" not in message or "method" not in message:
            continue
        offers = json.loads((folder / "offers.json").read_text(encoding="utf-8"))
        if can_be_asked and "asking" in offers and message["method"] == "tools/list":
            offers["tools"] = [*offers["tools"], *offers["asking"]]
            if message is not waiting:
                waiting = message
                question = {"jsonrpc": "2.0", "id": "question", "method": "elicitation/create"}
                sys.stdout.write(json.dumps({**question, "params": {"message": "?"}}) + "\n")
                sys.stdout.flush()
                continue
        if message["method"] == "tools/call":
            params = message["params"]
            token = params.get("_meta", {}).get("progressToken")
            act(folder, params.get("name"), params.get("arguments") or {}, token)
        result = answer(folder, offers, message["method"], message.get("params", {}))
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
