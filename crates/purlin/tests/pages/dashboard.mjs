// Checks the dashboard in a browser, with an agent that streams. Arguments: the program, a folder to work in.
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { Agent, SDK_AGENT, XSS, assert, checkSizes, launch, openPage, until } from "./browser.mjs";

const [, , program, folder, promtool] = process.argv;
const script = `${folder}/script.acp`;
const work = `${folder}/work`;
mkdirSync(work);
mkdirSync(`${folder}/run`, { mode: 0o700 });
const chunks = Array.from({ length: 200 }, (_, index) => `model text "canary-text ${index} sk-canary-0123456789 "\nmodel wait 50`);
writeFileSync(script, [...chunks, "model tool read {\"filePath\":\"missing\"}", "model end", "model hang"].join("\n"));
const env = { HOME: folder, XDG_RUNTIME_DIR: `${folder}/run`, XDG_STATE_HOME: `${folder}/state` };
// An OpenTelemetry collector.
const pushed = { "/v1/traces": "", "/v1/metrics": "" };
const collector = createServer((request, response) => {
  request.on("data", (part) => { pushed[request.url] += part; });
  request.on("end", () => response.end("{}"));
});
await new Promise((resolve) => collector.listen(0, "127.0.0.1", resolve));
const otlp = `http://127.0.0.1:${collector.address().port}`;
const dashboard = spawn(program, ["dashboard", "--otlp", otlp], { env: { ...process.env, ...env }, stdio: ["ignore", "ignore", "pipe"] });
const url = await new Promise((resolve) => createInterface({ input: dashboard.stderr }).once("line", resolve));
const origin = new URL(url).origin, token = new URL(url).searchParams.get("token");
const agent = new Agent(program, ["acp", "--model", `script:${script}`], env);
let browser;
try {
  const session = await agent.session(work);
  const ended = agent.prompt(session, XSS);
  browser = await launch();
  const { page, problems } = await openPage(browser, url, origin);
  assert(!page.url().includes("token"), "the token stays in the address");
  // Rates move while the session streams.
  const sent = async () => Number(await page.locator("#cards .card", { hasText: "sent per second" }).locator("b").innerText());
  await until("the rate moves", async () => (await sent()) > 1);
  await until("the method is counted", async () => (await page.locator("#methods").innerText()).includes("agent_message_chunk"));
  await until("the session runs", async () => (await page.locator("#sessions .state").first().innerText()).startsWith("runs"));
  // Its live sequence.
  await page.locator("#sessions tbody tr").first().focus();
  await page.keyboard.press("Enter");
  await until("the live sequence grows", async () => /chunk × \d\d/.test(await page.locator("#live-rows").innerText()));
  await page.keyboard.press("Escape");
  await until("the tool's failure is counted", async () => /tool\s+1/.test(await page.locator("#errors").innerText()));
  const get = (path, headers) => fetch(`${origin}${path}`, { headers });
  const metrics = await (await get("/metrics", { authorization: `Bearer ${token}` })).text();
  assert(/purlin_messages_total\{direction="out",method="session\/update agent_message_chunk"\} \d+/.test(metrics), metrics);
  assert(/purlin_errors_total\{flow="tool"\} 1/.test(metrics), metrics);
  // Says what is wrong with the format, and fails then.
  execFileSync(promtool, ["check", "metrics"], { input: metrics });
  assert((await get("/metrics", {})).status === 403, "the metrics need no token");
  assert((await get("/state", { authorization: `Bearer ${token}`, origin: "http://evil.example" })).status === 403, "another origin may ask");
  const all = metrics + (await (await get("/state", { authorization: `Bearer ${token}` })).text()) + (await (await get(`/session?id=${session}&after=0`, { authorization: `Bearer ${token}` })).text());
  assert(!all.includes("sk-canary"), "a key reached the dashboard");
  // The collector gets the numbers, and the spans of turns that have ended.
  const small = new Agent(program, ["acp"], env);
  const quiet = await small.session(work);
  await until("the small agent is found", async () => (await page.locator("#processes tr:not(.gone) .runs").count()) === 2);
  await small.prompt(quiet, "hello");
  await until("spans are pushed", async () => pushed["/v1/traces"].includes('"invoke_agent turn"'));
  await until("numbers are pushed", async () => pushed["/v1/metrics"].includes("purlin_messages_total"));
  assert(!JSON.stringify(pushed).includes("sk-canary"), "a key reached the collector");
  await small.end();
  await until("its end is noticed", async () => (await page.locator("#processes tr.gone").count()) === 1);
  // A killed agent goes grey.
  agent.child.kill("SIGKILL");
  await until("the killed agent is grey", async () => (await page.locator("#processes tr.gone").count()) === 2 && (await page.locator("#sessions tr.gone").count()) === 2);
  assert((await page.evaluate(() => window.hacked)) === undefined, "a title was run");
  assert((await page.locator("img, iframe").count()) === 0, "a title became markup");
  assert(problems.length === 0, problems.join("\n"));
  // An agent of others, behind `purlin tap`: its turns, tools and waits are seen, too.
  const tools = async () => Number(/duration_seconds_count\{operation="tool"\} (\d+)/.exec(await (await get("/metrics", { authorization: `Bearer ${token}` })).text())[1]);
  const before = await tools();
  const foreign = new Agent(program, ["tap", "--", "node", SDK_AGENT], env);
  const theirs = await foreign.session(work);
  await until("the tapped agent is shown", async () => (await page.locator("#processes tr:not(.gone)").allInnerTexts()).some((text) => text.includes("node")));
  const answered = foreign.prompt(theirs, "improve it");
  await until("its session runs", async () => (await page.locator("#sessions tr:not(.gone) .state").allInnerTexts()).some((text) => text.startsWith("runs")));
  await answered;
  await until("its tools are counted", async () => (await tools()) >= before + 2);
  await until("its session is idle", async () => (await page.locator("#sessions tr:not(.gone) .state").allInnerTexts()).some((text) => text.startsWith("idle")));
  await foreign.end();
  await until("its end is noticed", async () => (await page.locator("#processes tr.gone").count()) === 3);
  assert(problems.length === 0, problems.join("\n"));
  await checkSizes(page, "the dashboard");
  void ended;
  console.log("ok");
} finally {
  await browser?.close();
  agent.child.kill("SIGKILL");
  dashboard.kill("SIGTERM");
  collector.closeAllConnections();
  collector.close();
}
