// The editor's side of the pipe: files, a terminal, a user, all in memory.
//
// Made with the client half of the protocol's own SDK, which refuses what does not fit its schema. What the agent must do
// with it is in `judge.mjs`.

import { client, methods, RequestError } from "@agentclientprotocol/sdk";

/** What the editor can do, as it says in `initialize`. */
export const capabilities = {
  fs: { readTextFile: true, writeTextFile: true },
  terminal: true,
  elicitation: { form: {} },
};

export class Editor {
  files = new Map();
  /** Kinds of option to choose at the next questions, in order. */
  choices = [];
  /** Every permission that was asked for. */
  questions = [];
  /** Every command that a terminal was made for, and whether that terminal was given back. */
  terminals = [];

  /** Returns the client app that answers the agent's calls. */
  app() {
    const { fs, terminal, elicitation, session } = methods.client;
    return client({ name: "purlin-judge" })
      .onRequest(session.requestPermission, ({ params }) => this.choose(params))
      .onRequest(fs.readTextFile, ({ params }) => this.read(params))
      .onRequest(fs.writeTextFile, ({ params }) => void this.files.set(params.path, params.content))
      .onRequest(terminal.create, ({ params }) => this.open(params))
      .onRequest(terminal.output, () => ({ output: "done\n", truncated: false, exitStatus: { exitCode: 0 } }))
      .onRequest(terminal.waitForExit, () => ({ exitCode: 0 }))
      .onRequest(terminal.kill, () => undefined)
      .onRequest(terminal.release, ({ params }) => this.release(params))
      .onRequest(elicitation.create, ({ params }) => fillIn(params.requestedSchema));
  }

  choose(question) {
    this.questions.push(question);
    const kind = this.choices.shift();
    const option = question.options.find((option) => option.kind === kind);
    if (!option) throw RequestError.invalidParams({ offered: question.options }, `no option of kind ${kind}`);
    return { outcome: { outcome: "selected", optionId: option.optionId } };
  }

  read({ path }) {
    const content = this.files.get(path);
    if (content === undefined) throw RequestError.resourceNotFound(path);
    return { content };
  }

  open({ command, args = [] }) {
    const terminalId = `terminal-${this.terminals.length}`;
    this.terminals.push({ terminalId, command: [command, ...args].join(" "), isReleased: false });
    return { terminalId };
  }

  release({ terminalId }) {
    const terminal = this.terminals.find((terminal) => terminal.terminalId === terminalId);
    if (!terminal) throw RequestError.resourceNotFound(terminalId);
    terminal.isReleased = true;
  }
}

/** Answers a form: the same word in each field. */
function fillIn(schema) {
  const fields = Object.keys(schema.properties ?? {});
  return { action: "accept", content: Object.fromEntries(fields.map((field) => [field, "green"])) };
}
