// The judge: drives an agent with the protocol's own SDK and says what it finds.
//
//     node judge.mjs <purlin> acp --model script:judge.acp
//     node judge.mjs --over ws <purlin> serve --listen 127.0.0.1:0 --model script:judge.acp
//
// With `--over ws` or `--over http` the agent is a server, which prints its address on stderr.
//
// One line per check, then a count; the exit code is 0 if all passed. The checks build on each other and on the order of
// the answers in `judge.acp`. The editor that the agent talks to is in `editor.mjs`.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { methods, ndJsonStream, PROTOCOL_VERSION } from "@agentclientprotocol/sdk";
import { createHttpStream } from "@agentclientprotocol/sdk/experimental/http-client";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import WebSocket from "ws";
// The SDK does not check replies, so the judge does, with the SDK's own schema.
import * as schema from "./node_modules/@agentclientprotocol/sdk/dist/v1/schema/zod.gen.js";
import { capabilities, Editor } from "./editor.mjs";

const TIME_LIMIT = 20_000;
const tally = { passed: 0, failed: 0 };
const complaints = [];

/** Runs one check and prints what came of it. */
async function check(name, run) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no end after ${TIME_LIMIT} ms`)), TIME_LIMIT);
  });
  try {
    await Promise.race([run(), late]);
    tally.passed += 1;
    console.log(`pass  ${name}`);
  } catch (err) {
    tally.failed += 1;
    console.log(`FAIL  ${name}\n      ${String(err.message).replaceAll("\n", "\n      ")}`);
  } finally {
    clearTimeout(timer);
  }
}

/** Sends a prompt and returns all that was said until its end; `onUpdate` may interfere on the way. */
async function converse(session, text, onUpdate = () => {}) {
  // The reply also comes out of `nextUpdate`, in its place behind the updates; a failure is thrown there.
  session.prompt(text).catch(() => {});
  const updates = [];
  for (;;) {
    const message = await session.nextUpdate();
    if (message.kind === "stop") {
      schema.zPromptResponse.parse(message.response);
      return { updates, stopReason: message.stopReason, text: textOf(updates) };
    }
    updates.push(message.update);
    await onUpdate(message.update);
  }
}

function textOf(updates) {
  const chunks = updates.filter((update) => update.sessionUpdate === "agent_message_chunk");
  return chunks.map((chunk) => chunk.content.text).join("");
}

/** Returns the states that a tool call went through. */
function statesOf(updates, toolCallId) {
  const about = updates.filter((update) => update.toolCallId === toolCallId);
  // A call without a state is pending: that is the default of the schema.
  return about.map((update) => update.status ?? (update.sessionUpdate === "tool_call" ? "pending" : undefined)).filter(Boolean);
}

async function codeOf(request) {
  try {
    await request;
  } catch (err) {
    return err.code;
  }
  return "no error";
}

function parseNewSession(reply) {
  const parsed = schema.zNewSessionResponse.parse(reply);
  // The schema drops options that it cannot read instead of failing.
  assert.equal(parsed.configOptions?.length, reply.configOptions?.length, "an unreadable config option");
  return parsed;
}

async function judge(agent, editor, folder) {
  let session;

  await check("initialize answers version 1 and names the agent", async () => {
    const reply = await agent.request(methods.agent.initialize, {
      protocolVersion: PROTOCOL_VERSION,
      clientCapabilities: capabilities,
      clientInfo: { name: "purlin-judge", version: "0.0.0" },
    });
    schema.zInitializeResponse.parse(reply);
    assert.equal(reply.protocolVersion, 1);
    assert.equal(reply.agentInfo.name, "purlin");
    assert.ok(reply.agentInfo.version, "a version");
    assert.ok(reply.agentCapabilities, "capabilities");
  });

  await check("session/new answers an id, modes, models and their config options", async () => {
    session = await agent.buildSession(folder).start();
    const reply = session.newSessionResponse;
    parseNewSession(reply);
    assert.ok(session.sessionId, "a session id");
    const { currentModeId, availableModes } = reply.modes;
    assert.ok(availableModes.some((mode) => mode.id === currentModeId), "the current mode is one of the modes");
    const categories = reply.configOptions.map((option) => option.category);
    assert.ok(categories.includes("mode"), `a config option for the mode among ${categories}`);
    assert.ok(categories.includes("model"), `a config option for the model among ${categories}`);
    const { currentModelId, availableModels } = reply.models;
    assert.ok(availableModels.some((model) => model.modelId === currentModelId), "the current model is one of the models");
  });

  await check("a prompt streams its answer in order and ends", async () => {
    const turn = await converse(session, "Count.");
    assert.equal(turn.text, "One, two, three.");
    assert.equal(turn.stopReason, "end_turn");
  });

  await check("an allowed tool call asks, shows its diff, and writes through the client", async () => {
    editor.choices = ["allow_once"];
    const turn = await converse(session, "Write it.");
    const call = turn.updates.find((update) => update.sessionUpdate === "tool_call");
    assert.equal(call.kind, "edit");
    assert.equal(call.content.find((content) => content.type === "diff")?.newText, "allowed\n");
    assert.deepEqual(editor.questions.map((question) => question.toolCall.toolCallId), [call.toolCallId]);
    assert.deepEqual(statesOf(turn.updates, call.toolCallId), ["pending", "in_progress", "completed"]);
    assert.equal(editor.files.get(join(folder, "allowed.txt")), "allowed\n");
    assert.equal(turn.text, "Written.");
    assert.equal(turn.stopReason, "end_turn");
  });

  await check("a rejected tool call fails and changes nothing", async () => {
    editor.choices = ["reject_once"];
    const turn = await converse(session, "Write another.");
    const call = turn.updates.find((update) => update.sessionUpdate === "tool_call");
    assert.equal(editor.questions.length, 2);
    assert.deepEqual(statesOf(turn.updates, call.toolCallId), ["pending", "failed"]);
    assert.equal(editor.files.has(join(folder, "rejected.txt")), false);
    assert.equal(turn.text, "As you wish.");
    assert.equal(turn.stopReason, "end_turn");
  });

  await check("session/cancel ends a turn that hangs", async () => {
    const { sessionId } = session;
    const turn = await converse(session, "Take your time.", async (update) => {
      if (update.sessionUpdate === "agent_message_chunk") await agent.notify(methods.agent.session.cancel, { sessionId });
    });
    assert.equal(turn.text, "This takes for ever.");
    assert.equal(turn.stopReason, "cancelled");
  });

  await check("files, terminal, question and plan go through the client", async () => {
    editor.choices = ["allow_once"];
    const turn = await converse(session, "Use everything.");
    const calls = turn.updates.filter((update) => update.sessionUpdate === "tool_call");
    const last = calls.map((call) => statesOf(turn.updates, call.toolCallId).at(-1));
    assert.deepEqual(last, ["completed", "completed", "completed", "completed"]);
    assert.deepEqual(calls.slice(0, 2).map((call) => call.kind), ["read", "execute"]);
    assert.equal(editor.terminals.length, 1);
    assert.match(editor.terminals[0].command, /__terminal/);
    assert.doesNotMatch(editor.terminals[0].command, /echo done/);
    assert.ok(editor.terminals[0].isReleased, "the terminal is given back");
    const plan = turn.updates.find((update) => update.sessionUpdate === "plan");
    assert.deepEqual(plan.entries.map((entry) => entry.content), ["Look", "Leap"]);
    assert.equal(turn.text, "All done.");
  });

  await check("session/set_mode changes the mode", async () => {
    const { currentModeId, availableModes } = session.modes;
    const other = availableModes.find((mode) => mode.id !== currentModeId);
    const reply = await agent.request(methods.agent.session.setMode, { sessionId: session.sessionId, modeId: other.id });
    schema.zSetSessionModeResponse.parse(reply);
  });

  await check("session/set_config_option answers the complete list", async () => {
    const before = session.newSessionResponse.configOptions;
    const option = before.find((option) => option.category === "mode");
    // Back to where the session began: `session/set_mode` has just left it.
    const value = option.currentValue;
    const reply = await agent.request(methods.agent.session.setConfigOption, {
      sessionId: session.sessionId,
      configId: option.id,
      value,
    });
    schema.zSetSessionConfigOptionResponse.parse(reply);
    assert.deepEqual(reply.configOptions.map((option) => option.id), before.map((option) => option.id));
    assert.equal(reply.configOptions.find((after) => after.id === option.id).currentValue, value);
  });

  await check("an unknown method is -32601", async () => {
    assert.equal(await codeOf(agent.request("_judge/nonsense", {})), -32601);
  });

  await check("an unknown session is -31900", async () => {
    const params = { sessionId: "no-such-session", prompt: [{ type: "text", text: "Hello?" }] };
    assert.equal(await codeOf(agent.request(methods.agent.session.prompt, params)), -31900);
  });
}

/** Puts the script's files into the folder of this run: `/w` stands for it, as in all transcripts. */
function localise(argument, folder) {
  if (!argument.startsWith("script:")) return argument;
  const script = readFileSync(argument.slice("script:".length), "utf8");
  const copy = join(folder, "script.acp");
  writeFileSync(copy, script.replaceAll('"/w/', `"${folder}/`));
  return `script:${copy}`;
}

/** Waits for the address that a server prints. */
async function addressOf(child) {
  let printed = "";
  for await (const chunk of child.stderr) {
    printed += chunk;
    const found = printed.match(/Listening on ws(s?:\/\/\S+)/);
    if (found) return found[1];
  }
  throw new Error(`the server printed no address: ${printed}`);
}

/** Drives a server in this folder over the network. */
async function visit(transport, [program, ...args], folder) {
  const child = spawn(program, args.map((argument) => localise(argument, folder)), { stdio: ["ignore", "ignore", "pipe"] });
  const ended = once(child, "exit");
  const address = await addressOf(child);
  child.stderr.resume();
  const stream = transport === "ws" ? createWebSocketStream(`ws${address}`, { WebSocket }) : createHttpStream(`http${address}`);
  const editor = new Editor();
  const connection = editor.app().connect(stream);
  await judge(connection.agent, editor, folder);
  connection.close();
  await check("the server ends when it is told to", async () => {
    child.kill("SIGTERM");
    const [code, signal] = await ended;
    assert.deepEqual({ code, signal }, { code: 0, signal: null });
  });
  child.kill("SIGKILL");
}

/** Drives the agent in this folder from its start to its end. */
async function attend([program, ...args], folder) {
  const child = spawn(program, args.map((argument) => localise(argument, folder)), { stdio: ["pipe", "pipe", "inherit"] });
  await once(child, "spawn");
  const ended = once(child, "exit");
  // An agent that dies early shows up in the checks; the pipe to it need not bring us down, too.
  child.stdin.on("error", () => {});
  const editor = new Editor();
  const stream = ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
  const connection = editor.app().connect(stream);
  await judge(connection.agent, editor, folder);

  await check("the agent ends by itself when its input closes", async () => {
    child.stdin.end();
    const [code, signal] = await ended;
    assert.deepEqual({ code, signal }, { code: 0, signal: null });
  });
  connection.close();
  child.kill("SIGKILL");
}

async function main(command) {
  assert.ok(command.length > 0, "usage: node judge.mjs <agent> [arguments]");
  // The SDK reports on stderr what it does not like, such as an update that does not fit the schema.
  console.error = (...words) => complaints.push(words.map((word) => (typeof word === "string" ? word : JSON.stringify(word))).join(" "));
  const folder = realpathSync(mkdtempSync(join(tmpdir(), "purlin-judge-")));
  try {
    if (command[0] === "--over") await visit(command[1], command.slice(2), folder);
    else await attend(command, folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
  await check("the SDK has nothing to complain about", () => assert.deepEqual(complaints, []));
  console.log(`${tally.passed} passed, ${tally.failed} failed`);
  process.exitCode = tally.failed === 0 ? 0 : 1;
}

await main(process.argv.slice(2));
