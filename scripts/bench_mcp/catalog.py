"""Deterministic synthetic tool catalogue with realistic names, descriptions and schemas.

The same (seed, n) always gives the same tools, in every process, so the bench
client can predict what an upstream serves without asking it.
Stdlib only: it is imported by the fast upstream, whose start-up time matters.
"""

import random

PRODUCTS = (
    "zones dns workers kv r2 d1 queues access gateway tunnels images stream waf firewall rulesets "
    "load_balancers healthchecks logpush analytics spectrum registrar pages turnstile email_routing "
    "magic_transit magic_wan argo cache certificates custom_hostnames devices dlp durable_objects "
    "hyperdrive vectorize ai_gateway billing members roles tokens audit_logs alerting api_shield "
    "bot_management browser_rendering calls casb cloudforce diagnostics intel page_shield radar "
    "rate_limits secrets_store secondary_dns snippets waiting_rooms web3 zaraz origin_ca managed_headers"
).split()
RESOURCES = (
    "records policies rules groups applications bindings deployments namespaces buckets objects keys "
    "values scripts routes schedules secrets versions domains settings certificates sessions users "
    "reports events metrics datasets jobs pools monitors origins regions lists items subscriptions "
    "endpoints schemas operations destinations webhooks templates variants tags networks hostnames"
).split()
VERBS = (
    ("list", "List", "Results are paginated and can be filtered and sorted."),
    ("get", "Fetch a single", "Returns the full object, including its metadata and status."),
    ("create", "Create a new", "Validates the input and returns the created object."),
    ("update", "Replace an existing", "All fields are overwritten; omitted fields fall back to defaults."),
    ("patch", "Partially update an existing", "Only the given fields change."),
    ("delete", "Permanently delete an existing", "This cannot be undone."),
    ("search", "Search for", "Supports free text as well as structured filters."),
    ("export", "Export all", "Produces a downloadable archive in the requested format."),
    ("validate", "Validate the configuration of", "Nothing is changed; problems are returned as a list."),
    ("purge", "Purge cached copies of", "Takes effect globally within a few seconds."),
)
SCOPES = ("account", "zone", "organization", "user")
FIELDS = (
    ("account_id", "string", "Identifier of the account that owns the resource"),
    ("zone_id", "string", "Identifier of the zone, 32 hex characters"),
    ("name", "string", "Human readable name, unique within its parent"),
    ("comment", "string", "Free-form comment stored with the resource"),
    ("page", "integer", "Page number of paginated results, starting at 1"),
    ("per_page", "integer", "Maximum number of results per page"),
    ("order", "string", "Field to order results by"),
    ("direction", "string", "Sort direction, ascending or descending"),
    ("enabled", "boolean", "Whether the resource is active"),
    ("ttl", "integer", "Time to live in seconds; 1 means automatic"),
    ("priority", "integer", "Evaluation order, lower values first"),
    ("tags", "array", "Tags used to group and filter resources"),
    ("expression", "string", "Filter expression that selects matching requests"),
    ("since", "string", "Start of the time range, RFC 3339 timestamp"),
    ("until", "string", "End of the time range, RFC 3339 timestamp"),
    ("region", "string", "Region code where the resource is placed"),
    ("content", "string", "Content of the resource, validated against its type"),
    ("dry_run", "boolean", "Check the request and report problems without changing anything"),
    ("settings", "object", "Additional settings as key-value pairs"),
    ("notify", "array", "Addresses that are told when the operation finishes"),
)

#: Tools with behaviour; every upstream has them in addition to the synthetic ones.
CONTROL_TOOLS = [
    {
        "name": "echo",
        "description": "Return the given arguments unchanged.",
        "inputSchema": {
            "type": "object",
            "properties": {"nonce": {"type": "string", "description": "Any text"}},
        },
    },
    {
        "name": "sleep",
        "description": "Wait for the given number of milliseconds, then answer.",
        "inputSchema": {
            "type": "object",
            "properties": {"ms": {"type": "number", "description": "Milliseconds to wait"}},
            "required": ["ms"],
        },
    },
    {
        "name": "big",
        "description": "Return a text payload of the given size in kilobytes.",
        "inputSchema": {
            "type": "object",
            "properties": {"kb": {"type": "integer", "description": "Payload size in KiB"}},
            "required": ["kb"],
        },
    },
    {
        "name": "fail",
        "description": "Always report a tool execution error.",
        "inputSchema": {"type": "object", "properties": {"message": {"type": "string"}}},
    },
    {
        "name": "progress",
        "description": "Send progress notifications, one per step, then answer.",
        "inputSchema": {"type": "object", "properties": {"steps": {"type": "integer", "default": 5}}},
    },
    {
        "name": "rich",
        "description": "Answer with text, image and structured content and result metadata.",
        "inputSchema": {"type": "object", "properties": {}},
        "outputSchema": {
            "type": "object",
            "properties": {"answer": {"type": "integer"}, "items": {"type": "array", "items": {"type": "string"}}},
            "required": ["answer"],
        },
        "annotations": {"readOnlyHint": True, "title": "Rich result"},
    },
    {
        "name": "stats",
        "description": "Counters of this upstream: calls, cancelled calls, list requests, process id.",
        "inputSchema": {"type": "object", "properties": {}},
    },
]
CONTROL_NAMES = frozenset(t["name"] for t in CONTROL_TOOLS)


def make_tool(i: int, seed: str = "s") -> dict:
    """The i-th synthetic tool. Names are unique for i below about 27,000."""
    rng = random.Random(f"{seed}:{i}")
    product = PRODUCTS[i % len(PRODUCTS)]
    k = i // len(PRODUCTS)
    resource = RESOURCES[k % len(RESOURCES)]
    verb, verb_text, tail = VERBS[(k // len(RESOURCES) + i) % len(VERBS)]
    scope = SCOPES[(i * 7 + k) % len(SCOPES)]
    name = f"{scope}s_{product}_{resource}_{verb}"
    res, prod = resource.replace("_", " "), product.replace("_", " ")
    noun = res if verb in ("list", "search", "export", "purge") else res.removesuffix("s")
    desc = f"{verb_text} {noun} of {prod} at the {scope} level. {tail}"
    props: dict = {}
    required = []
    for fname, ftype, fdesc in rng.sample(FIELDS, rng.randint(2, 8)):
        p: dict = {"type": ftype, "description": f"{fdesc} ({prod} {noun})." if rng.random() < 0.4 else f"{fdesc}."}
        if fname == "direction":
            p["enum"] = ["asc", "desc"]
        elif fname == "region":
            p["enum"] = ["wnam", "enam", "weur", "eeur", "apac"]
        elif ftype == "array":
            p["items"] = {"type": "string"}
        elif ftype == "object":
            p["properties"] = {
                "mode": {"type": "string", "enum": ["off", "on", "auto"]},
                "value": {"type": "number", "minimum": 0},
            }
        elif ftype == "integer":
            p["minimum"] = 1
        props[fname] = p
        if rng.random() < 0.3:
            required.append(fname)
    schema: dict = {"type": "object", "properties": props}
    if required:
        schema["required"] = required
    return {"name": name, "description": desc, "inputSchema": schema}


def make_tools(n: int, seed: str = "s") -> list[dict]:
    """Control tools plus synthetic ones, n in total (never fewer than the control tools)."""
    fill = max(0, n - len(CONTROL_TOOLS))
    return [*CONTROL_TOOLS, *(make_tool(i, seed) for i in range(fill))]


def queries(n: int = 20, pool: int = 3300, seed: str = "q") -> list[tuple[str, str]]:
    """(query, expected tool name) pairs for search checks; words come from the tool's own text."""
    rng = random.Random(seed)
    out = []
    for _ in range(n):
        t = make_tool(rng.randrange(max(1, pool - len(CONTROL_TOOLS))))
        scope, rest = t["name"].split("_", 1)
        verb = rest.rsplit("_", 1)[1]
        middle = rest.rsplit("_", 1)[0].replace("_", " ")
        out.append((f"{verb} {middle} {scope.removesuffix('s')}", t["name"]))
    return out
