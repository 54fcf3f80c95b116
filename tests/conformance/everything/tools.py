"""The tools: a table of name, description, schema and function, in the order in which they are listed."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as types

from .asking import Call, elicitation, form, missing, roots, sampling
from .content import audio, embedded, image, text
from .events import Events

STEP = 0.05
"""Seconds between the notifications of a tool, so that they are seen to arrive while it runs."""

ENUMS: dict[str, Any] = {
    "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
    "titledSingle": {
        "type": "string",
        "oneOf": [
            {"const": f"value{n}", "title": f"{t} Option"} for n, t in enumerate(("First", "Second", "Third"), 1)
        ],
    },
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
    "titledMulti": {
        "type": "array",
        "items": {
            "anyOf": [
                {"const": f"value{n}", "title": f"{t} Choice"} for n, t in enumerate(("First", "Second", "Third"), 1)
            ]
        },
    },
}
DEFAULTS: dict[str, Any] = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@dataclass
class Run(Call):
    """One call of a tool."""

    arguments: Mapping[str, Any]
    events: Events

    async def log(self, message: str) -> None:
        await self.events.log(self.context, "info", message)


Content = list[dict[str, Any]]


@dataclass
class Tool:
    """A tool: `run` gives the content of its result."""

    name: str
    description: str
    run: Callable[[Run], Awaitable[Content]]
    schema: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})


def takes(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def answering(*blocks: dict[str, Any]) -> Callable[[Run], Awaitable[Content]]:
    async def run(_: Run) -> Content:
        return list(blocks)

    return run


async def fail(_: Run) -> Content:
    raise ValueError("This tool intentionally returns an error for testing")


async def log_three(run: Run) -> Content:
    await run.log("Tool execution started")
    await anyio.sleep(STEP)
    await run.log("Tool processing data")
    await anyio.sleep(STEP)
    await run.log("Tool execution completed")
    return [text("Logged three messages")]


async def progress(run: Run) -> Content:
    for step in (0, 50, 100):
        await run.context.session.report_progress(step, 100, f"{step} of 100")
        await anyio.sleep(STEP)
    return [text("Reported progress three times")]


async def sample(run: Run) -> Content:
    answer = (await run.ask({"completion": sampling(run.arguments["prompt"])}))["completion"]
    return [text(f"LLM response: {answer['content']['text']}")]


def eliciting(message: str | None, schema: Mapping[str, Any]) -> Callable[[Run], Awaitable[Content]]:
    async def run(run: Run) -> Content:
        question = elicitation(message or run.arguments["message"], schema)
        answer = (await run.ask({"form": question}))["form"]
        return [text(f"Elicitation completed: action={answer['action']}, content={answer.get('content')}")]

    return run


async def elicit_while_streaming(run: Run) -> Content:
    await run.context.session.report_progress(1, 2, "about to ask")
    answer = (await run.ask({"answer": form("Go on?", ok="boolean")}))["answer"]
    return [text(f"The answer was {answer['action']}")]


async def need_sampling(run: Run) -> Content:
    if "sampling" not in run.declared:
        raise missing("sampling")
    return [text("The client can sample")]


async def reconnect(run: Run) -> Content:
    if run.context.close_sse_stream is not None:
        await run.context.close_sse_stream()
    await anyio.sleep(2 * STEP)
    return [text("Answered after the stream was closed")]


def changing(kind: str) -> Callable[[Run], Awaitable[Content]]:
    async def run(run: Run) -> Content:
        await run.events.list_changed(kind)
        return [text(f"The list of {kind} has changed")]

    return run


async def update_resource(run: Run) -> Content:
    uri = run.arguments["uri"]
    await run.events.resource_updated(uri)
    return [text(f"{uri} was updated")]


async def region(run: Run) -> Content:
    return [text(f"region={run.arguments['region']}")]


# Stateless input requests. A name in an answer may be missing: the person may have declined.


def _field(answer: Mapping[str, Any], key: str) -> Any:
    return (answer.get("content") or {}).get(key, f"nobody ({answer.get('action')})")


async def ask_name(run: Run) -> Content:
    answer = (await run.ask({"user_name": form("What is your name?", name="string")}))["user_name"]
    return [text(f"Hello, {_field(answer, 'name')}!")]


async def ask_capital(run: Run) -> Content:
    answers = await run.ask({"capital_question": sampling("What is the capital of France?")})
    return [text(str(answers["capital_question"]["content"]))]


async def ask_roots(run: Run) -> Content:
    found = (await run.ask({"client_roots": roots()}))["client_roots"]["roots"]
    return [text(f"Roots: {', '.join(root['uri'] for root in found)}")]


async def ask_with_state(run: Run) -> Content:
    await run.ask({"confirm": form("Please confirm", ok="boolean")}, {"step": "confirm"})
    return [text("state-ok")]


async def ask_three(run: Run) -> Content:
    questions = {
        "user_name": form("What is your name?", name="string"),
        "greeting": sampling("Generate a greeting", 50),
        "client_roots": roots(),
    }
    answers = await run.ask(questions, {"step": "all"})
    return [text(f"{_field(answers['user_name'], 'name')} has {len(answers['client_roots']['roots'])} root(s)")]


async def ask_twice(run: Run) -> Content:
    state = (run.state if run.modern else None) or {}
    if "name" not in state:
        first = await run.ask({"step1": form("Step 1: What is your name?", name="string")}, {"step": 1})
        state = {"step": 2, "name": _field(first["step1"], "name")}
    second = await run.ask({"step2": form("Step 2: What is your favorite color?", color="string")}, state)
    return [text(f"{state['name']} likes {_field(second['step2'], 'color')}")]


async def ask_what_is_declared(run: Run) -> Content:
    questions = {
        "elicitation": form("What is your name?", name="string"),
        "sampling": sampling("Generate a greeting", 50),
        "roots": roots(),
    }
    answers = await run.ask({name: q for name, q in questions.items() if name in run.declared})
    return [text(f"Answered: {', '.join(sorted(answers))}")]


INPUT = "test_input_required_result_"
TOOLS = [
    Tool("test_simple_text", "Returns one text", answering(text("This is a simple text response for testing."))),
    Tool("test_image_content", "Returns an image", answering(image())),
    Tool("test_audio_content", "Returns audio", answering(audio())),
    Tool(
        "test_embedded_resource",
        "Returns an embedded resource",
        answering(embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")),
    ),
    Tool(
        "test_multiple_content_types",
        "Returns a text, an image and a resource",
        answering(
            text("Multiple content types test:"),
            image(),
            embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
        ),
    ),
    Tool(
        "test_resource_link",
        "Returns a link to a resource",
        answering({"type": "resource_link", "uri": "test://static-text", "name": "static-text"}),
    ),
    Tool("test_error_handling", "Always fails", fail),
    Tool("test_tool_with_logging", "Logs three messages while it runs", log_three),
    Tool("test_logging_tool", "Logs three messages, if it may", log_three),
    Tool("test_tool_with_progress", "Reports progress three times", progress),
    Tool("test_sampling", "Asks the client's model", sample, takes(prompt={"type": "string"})),
    Tool(
        "test_elicitation",
        "Asks the person for a name and an address",
        eliciting(None, form("", username="string", email="string")["params"]["requestedSchema"]),
        takes(message={"type": "string"}),
    ),
    Tool(
        "test_elicitation_sep1034_defaults",
        "Asks with a default for each type",
        eliciting("Please check these values", {"type": "object", "properties": DEFAULTS, "required": []}),
    ),
    Tool(
        "test_elicitation_sep1330_enums",
        "Asks with each form of a choice",
        eliciting("Please choose", {"type": "object", "properties": ENUMS, "required": []}),
    ),
    Tool("test_streaming_elicitation", "Reports progress, then asks the person", elicit_while_streaming),
    Tool("test_missing_capability", "Needs a client that can sample", need_sampling),
    Tool("test_reconnection", "Closes its stream before it answers", reconnect),
    Tool("json_schema_2020_12_tool", "Tool with JSON Schema 2020-12 features", answering(text("ok")), SCHEMA_2020_12),
    Tool(
        "test_header_parameter",
        "Has an argument that is mirrored in a header",
        region,
        takes(region={"type": "string", "x-mcp-header": "Region"}),
    ),
    Tool("test_trigger_tool_change", "Changes the list of tools", changing("tools")),
    Tool("test_trigger_prompt_change", "Changes the list of prompts", changing("prompts")),
    Tool("test_trigger_resource_change", "Changes the list of resources", changing("resources")),
    Tool("test_update_resource", "Says that a resource was updated", update_resource, takes(uri={"type": "string"})),
    Tool(INPUT + "elicitation", "Asks for a name", ask_name),
    Tool(INPUT + "sampling", "Asks the client's model for a capital", ask_capital),
    Tool(INPUT + "list_roots", "Asks for the client's roots", ask_roots),
    Tool(INPUT + "request_state", "Asks, and wants its state back", ask_with_state),
    Tool(INPUT + "multiple_inputs", "Asks three things at once", ask_three),
    Tool(INPUT + "multi_round", "Asks twice", ask_twice),
    Tool(INPUT + "tampered_state", "Asks, and refuses a state that it never gave", ask_with_state),
    Tool(INPUT + "capabilities", "Asks whatever the client says it can answer", ask_what_is_declared),
]
BY_NAME = {tool.name: tool for tool in TOOLS}


def listed(events: Events) -> list[types.Tool]:
    """The list of tools; the description of one says how often it has changed."""
    changed = {"test_trigger_tool_change": f" (changed {events.revisions['tools']} times)"}
    return [
        types.Tool(name=t.name, description=t.description + changed.get(t.name, ""), input_schema=t.schema)
        for t in TOOLS
    ]
