// An agent that works, except once: it dies at a given moment, says nothing, or talks nonsense.
//
//   node odd.mjs die MOMENT STATE    kills itself with SIGKILL at this moment, the first time
//   node odd.mjs silent _ STATE      reads everything and answers nothing
//   node odd.mjs nonsense _ STATE    mixes garbage with valid messages
//
// STATE is a file with the updates of the session, which `session/load` sends again.
import fs from "node:fs";
import readline from "node:readline";

const [what, moment, state] = process.argv.slice(2);
const mark = `${state}.died`;
const saved = fs.existsSync(state) ? JSON.parse(fs.readFileSync(state, "utf8")) : [];

const write = (text) => fs.writeSync(1, text);
const send = (message) => write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
const update = (update) => {
  saved.push(update);
  fs.writeFileSync(state, JSON.stringify(saved));
  send({ method: "session/update", params: { sessionId: "s", update } });
};
const say = (text) => update({ sessionUpdate: "agent_message_chunk", content: { type: "text", text } });

function at(here) {
  if (what !== "die" || moment !== here || fs.existsSync(mark)) return;
  fs.writeFileSync(mark, "");
  process.stderr.write(`last words at ${here}\n`);
  process.kill(process.pid, "SIGKILL");
}

function nonsense() {
  if (what !== "nonsense") return;
  write("Segmentation fault (just kidding)\n");
  write("{\"jsonrpc\":\"2.0\",\n");
  write("\u0000\u001b]0;owned\u0007\u001b[2J\n");
  write("[]\n[1,2]\nnull\n42\n\"text\"\n");
  send({ id: 999, result: {} });
  send({ id: "no such id", error: { code: 1, message: "surprise" } });
  send({ id: null, error: { code: -32700, message: "parse error" } });
  send({ result: {} });
  send({ id: 7, method: "no/such_method", params: [] });
  send({ method: "session/update", params: { sessionId: "s", update: { sessionUpdate: "no_such_update" } } });
  send({ method: "session/update", params: { sessionId: "another", update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text: "NOT FOR THIS SESSION" } } } });
  send({ method: "session/update", params: "no object" });
  send({ method: "session/request_permission", id: 8, params: { sessionId: "s" } });
  write("x".repeat(300_000) + "\n");
}

let lastCall = 100;
const waiting = new Map();
const ask = (method, params) =>
  new Promise((resolve) => {
    waiting.set(++lastCall, resolve);
    send({ id: lastCall, method, params });
  });

async function prompt(id, text) {
  at("prompt");
  nonsense();
  say(`You said ${text}. `);
  at("text");
  if (what === "die" && moment === "half a line" && !fs.existsSync(mark)) {
    write("{\"jsonrpc\":\"2.0\",\"method\":\"session/upd");
    at("half a line");
  }
  update({ sessionUpdate: "tool_call", toolCallId: `call-${saved.length}`, title: "Count to ten", kind: "execute", status: "in_progress" });
  const call = saved.at(-1).toolCallId;
  at("tool call");
  const options = [
    { optionId: "yes", name: "Allow it", kind: "allow_once" },
    { optionId: "no", name: "Reject it", kind: "reject_once" },
  ];
  const asked = ask("session/request_permission", { sessionId: "s", toolCall: { toolCallId: call }, options });
  if (what === "die" && moment === "question" && !fs.existsSync(mark)) setTimeout(() => at("question"), 300);
  const answer = await asked;
  at("answer");
  const isAllowed = answer.outcome.optionId === "yes";
  update({ sessionUpdate: "tool_call_update", toolCallId: call, status: isAllowed ? "completed" : "failed" });
  say(isAllowed ? "Counted.\n" : "Not counted.\n");
  at("end of turn");
  send({ id, result: { stopReason: "end_turn" } });
  at("after the turn");
}

if (what === "silent") {
  process.stdin.resume();
} else {
  at("start");
  nonsense();
  readline.createInterface({ input: process.stdin }).on("line", (line) => {
    const { id, method, params, result } = JSON.parse(line);
    switch (method) {
      case undefined:
        waiting.get(id)?.(result);
        return;
      case "initialize":
        at("initialize");
        send({ id, result: { protocolVersion: 1, agentCapabilities: { loadSession: true }, agentInfo: { name: "odd", version: "1" } } });
        return at("initialized");
      case "session/new":
        at("session/new");
        send({ id, result: { sessionId: "s" } });
        nonsense();
        return;
      case "session/load":
        for (const update of saved) send({ method: "session/update", params: { sessionId: "s", update } });
        send({ id, result: {} });
        return;
      case "session/prompt":
        return void prompt(id, params.prompt[0].text);
      case "session/cancel":
        return;
      default:
        if (id !== undefined) send({ id, error: { code: -32601, message: "Method not found" } });
    }
  });
}
