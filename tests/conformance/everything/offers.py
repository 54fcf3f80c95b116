"""Resources, templates, prompts and completions."""

import json
import re
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from .asking import Call, InputNeeded, form
from .content import embedded, image, png, text
from .events import Events

TEMPLATE = "test://template/{id}/data"
WORDS = ["paris", "park", "party", "test", "testValue1", "tested"]


class Offers:
    """The handlers of everything that is not a tool."""

    def __init__(self, events: Events) -> None:
        self._events = events

    async def resources(self, _context: Any, _params: Any) -> types.ListResourcesResult:
        def resource(name: str, mime: str, description: str) -> types.Resource:
            return types.Resource(uri=f"test://{name}", name=name, mime_type=mime, description=description)

        changed = self._events.revisions["resources"]
        return types.ListResourcesResult(
            resources=[
                resource("static-text", "text/plain", "A text that never changes"),
                resource("static-binary", "image/png", "A red pixel"),
                resource("watched-resource", "text/plain", f"One to subscribe to (changed {changed} times)"),
            ]
        )

    async def templates(self, _context: Any, _params: Any) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(
            uri_template=TEMPLATE, name="template", mime_type="application/json", description="Data by id"
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read(
        self, context: ServerRequestContext[Any, Any], params: types.ReadResourceRequestParams
    ) -> dict[str, Any]:
        uri = str(params.uri)
        if uri == "test://static-text":
            content = {"mimeType": "text/plain", "text": "This is the content of the static text resource."}
        elif uri == "test://static-binary":
            content = {"mimeType": "image/png", "blob": png()}
        elif uri == "test://watched-resource":
            content = {"mimeType": "text/plain", "text": "Watched"}
        elif match := re.fullmatch(r"test://template/([^/]+)/data", uri):
            data = {"id": match[1], "templateTest": True, "data": f"Data for ID: {match[1]}"}
            content = {"mimeType": "application/json", "text": json.dumps(data)}
        else:
            code = types.INVALID_PARAMS if Call(context).modern else -32002  # as each era's specification says
            raise MCPError(code, "Resource not found", {"uri": uri})
        return {"resultType": "complete", "contents": [{"uri": uri, **content}]}

    async def prompts(self, _context: Any, _params: Any) -> types.ListPromptsResult:
        def prompt(name: str, description: str, *arguments: str) -> types.Prompt:
            taken = [types.PromptArgument(name=a, description=f"The {a}", required=True) for a in arguments]
            return types.Prompt(name=f"test_{name}", description=description, arguments=taken or None)

        changed = self._events.revisions["prompts"]
        return types.ListPromptsResult(
            prompts=[
                prompt("simple_prompt", f"One message (changed {changed} times)"),
                prompt("prompt_with_arguments", "A message with two arguments", "arg1", "arg2"),
                prompt("prompt_with_embedded_resource", "A message with a resource", "resourceUri"),
                prompt("prompt_with_image", "A message with an image"),
                prompt("input_required_result_prompt", "A prompt that asks the person first"),
            ]
        )

    async def prompt(
        self, context: ServerRequestContext[Any, Any], params: types.GetPromptRequestParams
    ) -> dict[str, Any]:
        given = params.arguments or {}
        try:
            if params.name == "test_simple_prompt":
                blocks = [text("This is a simple prompt for testing.")]
            elif params.name == "test_prompt_with_arguments":
                blocks = [text(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")]
            elif params.name == "test_prompt_with_embedded_resource":
                resource = embedded(given["resourceUri"], "text/plain", "Embedded resource content for testing.")
                blocks = [resource, text("Please process the embedded resource above.")]
            elif params.name == "test_prompt_with_image":
                blocks = [image(), text("Please analyze the image above.")]
            elif params.name == "test_input_required_result_prompt":
                question = form("What context should the prompt use?", context="string")
                answer = (await Call(context).ask({"user_context": question}))["user_context"]
                blocks = [text(f"Context: {(answer.get('content') or {}).get('context')}")]
            else:
                raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")
        except KeyError as error:
            raise MCPError(types.INVALID_PARAMS, f"Missing argument: {error.args[0]}") from None
        except InputNeeded as needed:
            return needed.result
        return {"resultType": "complete", "messages": [{"role": "user", "content": block} for block in blocks]}

    async def complete(self, _context: Any, params: types.CompleteRequestParams) -> types.CompleteResult:
        words = [word for word in WORDS if word.startswith(params.argument.value)]
        return types.CompleteResult(completion=types.Completion(values=words, total=len(words), has_more=False))
