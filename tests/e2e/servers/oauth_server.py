"""The upstream of sdk_server.py behind an authorization server of its own.

    python oauth_server.py LEDGER http|sse

Its first line of stdout is `PORT n`; the server is at /mcp or /sse. Whoever opens the address of a login has logged in,
or is refused. `POST /control` with JSON changes how it behaves (see RULES), and does at once: `expire` (no access token
is good any more), `revoke` (nor one for renewal), `reset` (to what it was). `GET /seen` gives what was
asked of it, in its order.
"""

import base64
import hashlib
import json
import secrets
import socket
import sys
from typing import Any
from urllib.parse import parse_qsl, urlencode

import anyio
import uvicorn
from sdk_server import server, sse_app
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

KIND = sys.argv[2]
PATH = "/sse" if KIND == "sse" else "/mcp"
SOCKET = socket.create_server(("127.0.0.1", 0))
BASE = f"http://127.0.0.1:{SOCKET.getsockname()[1]}"

RULES: dict[str, Any] = {
    "deny": False,  # logins are refused
    "register": True,  # clients are registered
    "client": None,  # one that was registered by hand: [id, secret]
    "elsewhere": None,  # an address to which whoever is logged in is sent on
    "endpoints": BASE,  # what persons and tokens are sent to
    "token_answer": None,  # what is answered instead of a token
    "renewal_status": 200,
    "echo": "",  # a refusal repeats what was sent behind this, as some gateways do
    "open": False,  # nobody needs a token
    "described": True,  # there is metadata of the resource
    "where": None,  # what a refusal says of that
    "needs": "",  # the scope without which no tool is called
    "challenge": "Bearer ",  # what a refusal for lack of it asks for
    "revoke_status": 0,  # of the endpoint that revokes tokens; 0: there is none
    "metadata": {},  # of the authorization server, besides
    "back": {},  # what the browser brings back, besides
    "instead": {},  # path: what is answered there, see `instead`
}
ORIGINAL = dict(RULES)
SEEN: list[dict[str, Any]] = []
CLIENTS: dict[str, dict[str, Any]] = {}
CODES: dict[str, dict[str, str]] = {}
ACCESS: dict[str, str] = {}
"""Access token -> its scopes."""
RENEWAL: dict[str, str] = {}


def instead(rule: dict[str, Any]) -> Response:
    """`status` (200), `headers`, and `json` or `text` (in a `charset`), so many `times`, after `hang` seconds."""

    async def body() -> Any:
        await anyio.sleep(rule.get("hang", 0))
        text = json.dumps(rule["json"]) if "json" in rule else rule.get("text", "")
        for _ in range(rule.get("times", 1)):
            yield text.encode(rule.get("charset", "utf-8"))

    return StreamingResponse(body(), rule.get("status", 200), rule.get("headers"), media_type="application/json")


async def resource(_request: Request) -> Response:
    if not RULES["described"]:
        return Response("nothing here", 404)
    return JSONResponse({"resource": f"{BASE}{PATH}", "authorization_servers": [BASE], "scopes_supported": ["tools"]})


async def metadata(_request: Request) -> Response:
    found: dict[str, Any] = {
        "issuer": BASE,
        "authorization_endpoint": f"{RULES['endpoints']}/oauth/authorize",
        "token_endpoint": f"{RULES['endpoints']}/oauth/token",
        "response_types_supported": ["code"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
    }
    found |= {"registration_endpoint": f"{BASE}/oauth/register"} if RULES["register"] else {}
    found |= {"revocation_endpoint": f"{BASE}/oauth/revoke"} if RULES["revoke_status"] else {}
    return JSONResponse(found | RULES["metadata"])


async def register(request: Request) -> Response:
    asked = await request.json()
    SEEN.append({"what": "register", "api_key": request.headers.get("x-api-key", ""), **asked})
    made = {**asked, "client_id": f"client-{secrets.token_hex(8)}"}
    CLIENTS[made["client_id"]] = made
    return JSONResponse(made, 201)


async def authorize(request: Request) -> Response:
    asked = dict(request.query_params)
    SEEN.append({"what": "authorize", **asked})
    known = CLIENTS.get(asked["client_id"])
    if RULES["client"] is not None and asked["client_id"] == RULES["client"][0]:
        known = {"redirect_uris": [asked["redirect_uri"]]}
    if known is None or asked["redirect_uri"] not in known["redirect_uris"]:
        return Response("no such client", 400)
    found = {"state": asked["state"]}
    if RULES["deny"]:
        found |= {"error": "access_denied", "error_description": "The person said no"}
    else:
        found["code"] = f"code-{secrets.token_hex(16)}"
        CODES[found["code"]] = asked
    return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(found | RULES['back'])}", 302)


async def token(request: Request) -> Response:
    asked = dict(parse_qsl((await request.body()).decode()))
    SEEN.append({"what": "token", "authorization": request.headers.get("authorization"), **asked})
    SEEN[-1]["api_key"] = request.headers.get("x-api-key", "")
    scope = asked.get("scope", "tools")
    if asked["grant_type"] == "refresh_token":
        if RULES["renewal_status"] != 200:
            return Response("down", RULES["renewal_status"])
        if asked["refresh_token"] not in RENEWAL:
            return JSONResponse({"error": "invalid_grant", "error_description": f"unknown {asked}"}, 400)
        scope = RENEWAL.pop(asked["refresh_token"])  # good for one time
    elif asked["grant_type"] == "authorization_code":
        of = CODES.pop(asked["code"], None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(asked["code_verifier"].encode()).digest()).rstrip(b"=")
        if of is None or challenge.decode() != of["code_challenge"] or of["redirect_uri"] != asked["redirect_uri"]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        scope = of.get("scope", "tools")
    if RULES["client"] is not None:
        expected = base64.b64encode(":".join(RULES["client"]).encode()).decode()
        if request.headers.get("authorization") != f"Basic {expected}":
            return JSONResponse({"error": "invalid_client", "error_description": f"unknown {asked}"}, 401)
    access, renewal = f"access.{secrets.token_urlsafe(24)}", f"renewal.{secrets.token_urlsafe(24)}"
    ACCESS[access] = RENEWAL[renewal] = scope
    SEEN.append({"what": "made", "tokens": [access, renewal]})
    if RULES["token_answer"] is not None:
        text = RULES["token_answer"].replace("ASKED", json.dumps(asked)).replace("ACCESS", access)
        return Response(text, 400 if text.startswith(("no", '{"error"')) else 200)
    made = {"access_token": access, "token_type": "bearer", "expires_in": 3600, "scope": scope}
    return JSONResponse(made | ({} if asked["grant_type"] == "client_credentials" else {"refresh_token": renewal}))


async def revoke(request: Request) -> Response:
    asked = dict(parse_qsl((await request.body()).decode()))
    SEEN.append({"what": "revoke", "authorization": request.headers.get("authorization"), **asked})
    return Response("", RULES["revoke_status"])


async def control(request: Request) -> Response:
    for name, value in (await request.json()).items():
        if name in ("expire", "revoke"):
            ACCESS.clear()
            if name == "revoke":
                RENEWAL.clear()
        elif name == "reset":
            RULES.update(ORIGINAL)
        else:
            assert name in RULES, name
            RULES[name] = value
    return JSONResponse(RULES)


async def seen(_request: Request) -> Response:
    return JSONResponse(SEEN)


OPEN = Starlette(
    routes=[
        Route(f"/.well-known/oauth-protected-resource{PATH}", resource),
        Route("/.well-known/oauth-authorization-server", metadata),
        Route("/oauth/register", register, methods=["POST"]),
        Route("/oauth/authorize", authorize),
        Route("/oauth/token", token, methods=["POST"]),
        Route("/oauth/revoke", revoke, methods=["POST"]),
        Route("/control", control, methods=["POST"]),
        Route("/seen", seen),
    ]
)
GUARDED = sse_app() if KIND == "sse" else server.streamable_http_app()


async def app(scope: Any, receive: Any, send: Any) -> None:
    """What is guarded wants a token; the rest is open to everybody."""
    if scope["type"] != "http":
        return await GUARDED(scope, receive, send)
    if scope["path"] in RULES["instead"]:
        accepted = Request(scope).headers.get("accept-encoding")
        SEEN.append({"what": "instead", "path": scope["path"], "accept-encoding": accepted})
        return await instead(RULES["instead"][scope["path"]])(scope, receive, send)
    if scope["path"].startswith(("/oauth/", "/.well-known/", "/control", "/seen")):
        return await OPEN(scope, receive, send)
    given = Request(scope).headers.get("authorization", "")
    version = Request(scope).headers.get("mcp-protocol-version", "")
    key = Request(scope).headers.get("x-api-key", "")
    SEEN.append({"what": "mcp", "version": version, "authorization": given, "api_key": key})
    granted = ACCESS.get(given.removeprefix("Bearer "))
    if RULES["needs"] and Request(scope).headers.get("mcp-method") == "tools/call":
        if RULES["needs"] not in (granted or "").split():
            return await Response("no", 403, {"www-authenticate": RULES["challenge"]})(scope, receive, send)
    if RULES["open"] or granted is not None:
        if RULES["elsewhere"] is not None:
            return await RedirectResponse(RULES["elsewhere"], 307)(scope, receive, send)
        return await GUARDED(scope, receive, send)
    where = RULES["where"] or f'Bearer resource_metadata="{BASE}/.well-known/oauth-protected-resource{PATH}"'
    body = f"{RULES['echo']}{given.removeprefix('Bearer ')} is no good" if RULES["echo"] else "who are you?"
    status = 403 if RULES["echo"] else 401
    return await Response(body, status, {"www-authenticate": where})(scope, receive, send)


if __name__ == "__main__":
    print(f"PORT {SOCKET.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)).run(sockets=[SOCKET])
