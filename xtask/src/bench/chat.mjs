// The agent of `cargo xtask bench chat`: writes prepared lines, so that only the client takes time.
import fs from "node:fs";
import readline from "node:readline";

const chunk = (text) =>
  JSON.stringify({
    jsonrpc: "2.0",
    method: "session/update",
    params: { sessionId: "s", update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text } } },
  }) + "\n";
const reply = (id, result) => JSON.stringify({ jsonrpc: "2.0", id, result }) + "\n";
const write = (text) => {
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; ) {
    try {
      at += fs.writeSync(1, bytes, at);
    } catch (err) {
      if (err.code !== "EAGAIN") throw err;
    }
  }
};
const history = Array.from({ length: 9999 }, (_, at) =>
  chunk(at % 20 === 19 ? "and the end of a paragraph.\n\n" : `word ${at} of **many** `),
).join("");

async function prompt(id, text) {
  if (text === "stream") {
    // 20,000 chunks in about ten seconds.
    for (let at = 0; at < 1000; at++) {
      write(Array.from({ length: 20 }, (_, part) => chunk(part === 19 && at % 4 === 3 ? "end.\n\n" : "some words ")).join(""));
      await new Promise((done) => setTimeout(done, 10));
    }
    write(chunk("\n\nSTREAM DONE\n\n"));
  } else {
    write(chunk(`An answer to ${text} with some **words**.\n\n- one\n- two\n\n`));
    const id = `t${Math.random()}`;
    const call = (update) =>
      JSON.stringify({ jsonrpc: "2.0", method: "session/update", params: { sessionId: "s", update } }) + "\n";
    write(call({ sessionUpdate: "tool_call", toolCallId: id, title: "Read a file", kind: "read", status: "pending" }));
    const content = [{ type: "content", content: { type: "text", text: "line\n".repeat(200) } }];
    write(call({ sessionUpdate: "tool_call_update", toolCallId: id, status: "completed", content }));
    write(chunk(`DONE ${text}.\n\n`));
  }
  write(reply(id, { stopReason: "end_turn" }));
}

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (method === "initialize") {
    write(reply(id, { protocolVersion: 1, agentCapabilities: { loadSession: true }, agentInfo: { name: "bench", version: "1" } }));
  } else if (method === "session/new") write(reply(id, { sessionId: "s" }));
  else if (method === "session/load") write(history + chunk("\n\nLOADED\n\n") + reply(id, {}));
  else if (method === "session/prompt") void prompt(id, params.prompt[0].text);
});
