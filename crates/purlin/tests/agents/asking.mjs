// An agent that wants something of its user: a log-in in the terminal first, then answers to forms.
//
//   node asking.mjs STATE            the agent; sessions open only once STATE exists
//   node asking.mjs STATE --login    its log-in: reads a password from the terminal and writes STATE
import fs from "node:fs";
import readline from "node:readline";

const [state, mode] = process.argv.slice(2);
const send = (message) => fs.writeSync(1, JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
const say = (text) =>
  send({ method: "session/update", params: { sessionId: "s", update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text } } } });

if (mode === "--login") {
  const lines = readline.createInterface({ input: process.stdin, output: process.stdout });
  lines.question("The password: ", (password) => {
    fs.writeFileSync(state, password);
    lines.close();
    process.exit(password === "right" ? 0 : 1);
  });
} else {
  let lastCall = 100;
  const waiting = new Map();
  const ask = (params) =>
    new Promise((resolve) => {
      waiting.set(++lastCall, resolve);
      send({ id: lastCall, method: "elicitation/create", params: { sessionId: "s", ...params } });
    });
  const prompt = async (id) => {
    const properties = {
      a_name: { type: "string", title: "Name", minLength: 3, description: "How the package is called" },
      b_kind: { type: "string", title: "Kind", oneOf: [{ const: "lib", title: "Library" }, { const: "bin", title: "Program" }] },
      c_parts: { type: "array", title: "Parts", items: { type: "string", enum: ["tests", "docs", "bench"] } },
    };
    const form = await ask({ mode: "form", message: "What shall I create?", requestedSchema: { type: "object", properties, required: ["a_name"] } });
    say(`You answered ${JSON.stringify(form)}.\n\n`);
    const page = await ask({ mode: "url", message: "Please confirm.", elicitationId: "e", url: "https://example.org/confirm" });
    say(`The page: ${page.action}.\n\n`);
    send({ id, result: { stopReason: "end_turn" } });
  };
  readline.createInterface({ input: process.stdin }).on("line", (line) => {
    const { id, method, params, result } = JSON.parse(line);
    if (method === undefined) return waiting.get(id)?.(result);
    if (method === "initialize") {
      const login = { type: "terminal", id: "password", name: "Enter a password", args: ["--login"] };
      const authMethods = params.clientCapabilities.auth?.terminal ? [login] : [];
      return send({ id, result: { protocolVersion: 1, authMethods, agentInfo: { name: "asking", version: "1" } } });
    }
    if (method === "session/new" && !fs.existsSync(state)) return send({ id, error: { code: -32000, message: "Authentication required" } });
    if (method === "session/new") return send({ id, result: { sessionId: "s" } });
    if (method === "session/prompt") return void prompt(id);
    if (id !== undefined) send({ id, error: { code: -32601, message: "Method not found" } });
  });
}
