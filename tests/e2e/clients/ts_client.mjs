// The clients of the TypeScript SDK; see steps.py for what is read and printed.
//
//     node ts_client.mjs NODE_MODULES v1|v2 stdio COMMAND... | http URL | sse URL
//
// v1 is @modelcontextprotocol/sdk, v2 its successor @modelcontextprotocol/client, which speaks the stateless era.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { join } from "node:path";

const [modules, line, transport, ...words] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(join(modules, "@modelcontextprotocol", path)).href);

async function sdk() {
  if (line === "v2") {
    const all = await load("client/dist/index.mjs");
    return { ...all, ...(await load("client/dist/stdio.mjs")) };
  }
  const parts = ["client/index.js", "client/stdio.js", "client/streamableHttp.js", "client/sse.js", "types.js"];
  return Object.assign({}, ...(await Promise.all(parts.map((part) => load(`sdk/dist/esm/${part}`)))));
}

const s = await sdk();
const modern = line === "v2";
const headers = { Authorization: `Bearer ${process.env.TOKEN ?? ""}` };
const options = { capabilities: { elicitation: {} } };
if (modern) options.versionNegotiation = { mode: "auto" };
const client = new s.Client({ name: `typescript-${line}`, version: "1" }, options);
let logs = [];
let asked = [];

const elicit = async (request) => {
  asked.push(request.params);
  return { action: "accept", content: { name: "Ada é" } };
};
const log = async (notification) => void logs.push(notification.params);
client.setRequestHandler(modern ? "elicitation/create" : s.ElicitRequestSchema, elicit);
client.setNotificationHandler(modern ? "notifications/message" : s.LoggingMessageNotificationSchema, log);

const url = () => new URL(words[0]);
const channel =
  transport === "stdio"
    ? new s.StdioClientTransport({ command: words[0], args: words.slice(1), env: { ...process.env } })
    : transport === "http"
      ? new s.StreamableHTTPClientTransport(url(), { requestInit: { headers } })
      : new s.SSEClientTransport(url(), { requestInit: { headers }, eventSourceInit: { headers } });
const callTool = (params, more) =>
  modern ? client.callTool(params, more) : client.callTool(params, undefined, more);

const actions = {
  tools: async () => (await client.listTools()).tools.map((tool) => tool.name),
  call: async ({ name, arguments: given, level }) => {
    [logs, asked] = [[], []];
    const progress = [];
    const params = { name, arguments: given };
    if (level && modern) params._meta = { "io.modelcontextprotocol/logLevel": level };
    else if (level) await client.setLoggingLevel(level);
    const result = await callTool(params, { onprogress: (step) => progress.push(step.progress) });
    return { result, progress, logs, asked };
  },
  cancel: async ({ name, arguments: given }) => {
    const abort = new AbortController();
    const more = { signal: abort.signal, onprogress: () => abort.abort("changed my mind") };
    try {
      await callTool({ name, arguments: given }, more);
    } catch (error) {
      if (abort.signal.aborted) return true;
      throw error;
    }
    return false;
  },
  resources: async () => (await client.listResources()).resources.map((resource) => resource.uri),
  templates: async () => (await client.listResourceTemplates()).resourceTemplates.map((t) => t.uriTemplate),
  read: async ({ uri }) => (await client.readResource({ uri })).contents,
  prompts: async () => (await client.listPrompts()).prompts.map((prompt) => prompt.name),
  prompt: async ({ name, arguments: given }) => (await client.getPrompt({ name, arguments: given })).messages,
  complete: async ({ prompt, argument, value }) => {
    const ref = { type: "ref/prompt", name: prompt };
    return (await client.complete({ ref, argument: { name: argument, value } })).completion.values;
  },
};

await client.connect(channel);
for (const step of JSON.parse(readFileSync(0, "utf8"))) {
  let answer;
  try {
    answer = await actions[step.do](step);
  } catch (error) {
    if (typeof error.code !== "number") throw error;
    answer = { error: { code: error.code, message: error.message, data: error.data } };
  }
  console.log(JSON.stringify(answer));
}
await client.close();
process.exit(0);
