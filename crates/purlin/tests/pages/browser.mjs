// What the checks of the pages share: a browser, an agent, and assertions that say what was seen.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

/** The example agent of the protocol's SDK. */
export const SDK_AGENT = fileURLToPath(new URL("../agents/node_modules/acp-example/dist/examples/agent.js", import.meta.url));

export const XSS = `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>`;

export function assert(condition, what) {
  if (!condition) throw new Error(what);
}

/** Opens a page that must not fail, and must ask nobody but `allowed`. */
export async function openPage(browser, url, allowed, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  const problems = [];
  page.on("pageerror", (error) => problems.push(`error in the page: ${error.message}`));
  page.on("console", (message) => { if (message.type() === "error") problems.push(`console: ${message.text()}`); });
  page.on("request", (request) => { if (!request.url().startsWith(allowed)) problems.push(`asked for ${request.url()}`); });
  await page.goto(url);
  return { page, problems };
}

/** Repeats a look at the page until it is as expected: pages change when agents do. */
export async function until(what, look) {
  const end = Date.now() + 30_000;
  let seen;
  while (Date.now() < end) {
    seen = await look();
    if (seen === true) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`${what}: ${JSON.stringify(seen)}`);
}

/** Checks that a page fits in three sizes, light and dark: nothing scrolls sideways, and text can be told from what is behind it. */
export async function checkSizes(page, what) {
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    for (const [width, height] of [[1280, 900], [820, 1000], [400, 800]]) {
      await page.setViewportSize({ width, height });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      assert(wide <= width, `${what} is ${wide} wide in a window of ${width}, ${colorScheme}`);
      const [text, behind] = await page.evaluate(() => {
        const style = getComputedStyle(document.body);
        const light = (color) => color.match(/[\d.]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 3;
        return [light(style.color), light(style.backgroundColor)];
      });
      assert(colorScheme === "dark" ? text - behind > 100 : behind - text > 100, `${what}, ${colorScheme}: text ${text} on ${behind}`);
    }
  }
}

export function launch() {
  const executablePath = process.env.CHROMIUM || "/usr/bin/chromium";
  return chromium.launch({ executablePath, args: ["--no-sandbox"] });
}

/** An agent, as an editor would start it. */
export class Agent {
  constructor(program, args, env, cwd) {
    this.child = spawn(program, args, { cwd, env: { ...process.env, ...env }, stdio: ["pipe", "pipe", "ignore"] });
    this.waiting = new Map();
    /** How long the user thinks before an answer, in milliseconds. */
    this.patience = 0;
    this.next = 0;
    createInterface({ input: this.child.stdout }).on("line", (line) => {
      const message = JSON.parse(line);
      if (message.method === "session/request_permission") {
        const option = message.params.options.find((one) => one.kind === "allow_once");
        setTimeout(() => this.send({ id: message.id, result: { outcome: { outcome: "selected", optionId: option.optionId } } }), this.patience);
      } else if (message.id !== undefined && this.waiting.has(message.id)) {
        this.waiting.get(message.id)(message);
        this.waiting.delete(message.id);
      }
    });
  }
  send(message) { this.child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`); }
  call(method, params) {
    const id = this.next++;
    return new Promise((resolve) => { this.waiting.set(id, resolve); this.send({ id, method, params }); });
  }
  async session(cwd) {
    await this.call("initialize", { protocolVersion: 1, clientCapabilities: {} });
    return (await this.call("session/new", { cwd, mcpServers: [] })).result.sessionId;
  }
  prompt(sessionId, text) { return this.call("session/prompt", { sessionId, prompt: [{ type: "text", text }] }); }
  async end() {
    const ended = new Promise((resolve) => this.child.on("exit", resolve));
    this.child.stdin.end();
    await ended;
  }
}
