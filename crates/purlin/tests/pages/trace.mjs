// Checks the page of a trace in a browser. Arguments: the program, a folder to work in.
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { Agent, SDK_AGENT, XSS, assert, checkSizes, launch, openPage, until } from "./browser.mjs";

const [, , program, folder] = process.argv;
const script = `${folder}/script.acp`, trace = `${folder}/trace.jsonl`, html = `${folder}/page.html`;
mkdirSync(`${folder}/work`);
writeFileSync(script, [
  `model text ${JSON.stringify(XSS)}`,
  `model tool ${JSON.stringify("read")} `.replaceAll('"', "") + JSON.stringify({ filePath: `${XSS.replaceAll("/", "")}` }),
  `model tool bash ${JSON.stringify({ command: "echo hello", description: "Say hello" })}`,
  "model end", "model chunks 10000 \"chunk \"", "model end",
].join("\n"));
const env = { HOME: folder, XDG_RUNTIME_DIR: folder, XDG_STATE_HOME: `${folder}/state` };
const agent = new Agent(program, ["acp", "--model", `script:${script}`, "--trace", trace], env);
const session = await agent.session(`${folder}/work`);
await agent.prompt(session, XSS);
await agent.prompt("no-such-session", "hello");
await agent.end();
execFileSync(program, ["trace", trace, "--html", html], { env: { ...process.env, ...env } });

const browser = await launch();
try {
  const { page, problems } = await openPage(browser, `file://${html}`, "file://");
  const rows = () => page.locator(".seq .row").count();
  const texts = () => page.locator("#view").innerText();
  assert((await texts()).includes("Turn 1"), "no turn in the sequence");
  assert((await rows()) < 100, "the sequence draws rows that nobody sees");
  // A run of chunks is one row; expanded, it is as long as the trace, and still only what is visible exists.
  await page.getByRole("option", { name: /agent_message_chunk × \d+/ }).first().click();
  await page.locator(".seq .scroll").evaluate((list) => { list.scrollTop = list.scrollHeight; });
  await until("the end of the list is drawn", async () => (await page.getByRole("option", { name: /session\/prompt (answered|failed)/ }).count()) > 0);
  assert((await rows()) < 100, "the expanded sequence draws rows that nobody sees");
  await page.getByRole("button", { name: "Fold all" }).click();
  await until("all groups are folded", async () => (await rows()) < 6);
  await page.getByRole("button", { name: "Unfold" }).click();
  // Search finds the hostile text, and shows it as text.
  await page.keyboard.press("/");
  await page.keyboard.type("echo hello");
  await until("the search finds the command", async () => { const found = await rows(); return (found > 0 && found < 20) || found; });
  await page.locator(".seq .row").first().click();
  assert(await page.locator("#detail").isVisible(), "no details");
  await page.keyboard.press("Escape");
  await page.locator("#search").fill("");
  // Timing: spans nest, and the keyboard zooms.
  await page.click("[data-tab=timing]");
  await until("spans are drawn", async () => (await page.locator(".bar").count()) > 4);
  for (const kind of ["turn", "model", "tool", "command"]) assert((await page.locator(`.bar.k-${kind}`).count()) > 0, `no ${kind} in the timing`);
  const before = await page.locator(".axis .plot").innerText();
  await page.locator(".scroll").focus();
  await page.keyboard.press("+");
  await until("the zoom changes the axis", async () => (await page.locator(".axis .plot").innerText()) !== before);
  // Errors: the one that was provoked, and the tool that failed, with what came next.
  await page.click("[data-tab=errors]");
  const errors = await texts();
  assert(errors.includes("Session not found"), `the refused call is missing: ${errors}`);
  assert(errors.includes("tool read") && errors.includes("came next"), `the chain of the failed tool is missing: ${errors}`);
  // Profile: operations with their percentiles.
  await page.click("[data-tab=profile]");
  const profile = await texts();
  for (const word of ["p50", "p95", "p99", "model script/file", "command echo"]) assert(profile.includes(word), `no ${word} in the profile`);
  assert((await page.evaluate(() => window.hacked)) === undefined, "text of the trace was run");
  assert((await page.locator("img, iframe, object").count()) === 0, "text of the trace became markup");
  assert(problems.length === 0, problems.join("\n"));
  // A narrow window does not scroll sideways.
  for (const tab of ["sequence", "timing", "errors", "profile"]) {
    await page.click(`[data-tab=${tab}]`);
    await checkSizes(page, tab);
  }
  // An agent of others, through `purlin tap`: its spans come from its messages.
  const tapped = `${folder}/tapped.jsonl`, view = `${folder}/tapped.html`;
  const foreign = new Agent(program, ["tap", "--trace", tapped, "--", "node", SDK_AGENT], env);
  await foreign.prompt(await foreign.session(`${folder}/work`), "improve it");
  await foreign.end();
  execFileSync(program, ["trace", tapped, "--html", view], { env: { ...process.env, ...env } });
  const other = await openPage(browser, `file://${view}`, "file://");
  assert((await other.page.locator("#view").innerText()).includes("Turn 1"), "no turn of the tapped agent");
  await other.page.click("[data-tab=timing]");
  for (const kind of ["turn", "tool", "permission"]) await until(`a ${kind} of the tapped agent`, async () => (await other.page.locator(`.bar.k-${kind}`).count()) > 0);
  await other.page.click("[data-tab=errors]");
  await other.page.click("[data-tab=profile]");
  assert((await other.page.locator("#view").innerText()).includes("p95"), "no profile of the tapped agent");
  assert(other.problems.length === 0, other.problems.join("\n"));
  console.log("ok");
} finally {
  await browser.close();
}
