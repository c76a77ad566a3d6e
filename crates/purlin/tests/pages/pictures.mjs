// Takes pictures of the pages, with agents that do something: `node pictures.mjs PROGRAM FOLDER`. FOLDER gets the dashboard and
// the four views of a trace in three sizes, light and dark; `dashboard.png` and `trace-timing.png` are those of the docs.
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { Agent, launch, openPage, until } from "./browser.mjs";

const [, , program, folder] = process.argv;
const home = "/tmp/purlin-demo";
rmSync(home, { recursive: true, force: true });
mkdirSync(home, { mode: 0o700 });
for (const name of ["run", "shop", "blog", "tools"]) mkdirSync(`${home}/${name}`, { mode: 0o700 });
writeFileSync(`${home}/shop/cart.js`, "export function total(items) {\n  return items.reduce((sum, item) => sum + item.price, 0);\n}\n");
const env = { HOME: home, XDG_RUNTIME_DIR: `${home}/run`, XDG_STATE_HOME: `${home}/state`, XDG_CONFIG_HOME: `${home}/config`, XDG_DATA_HOME: `${home}/data` };
const usage = (input, output) => `model usage ${JSON.stringify({ input, output, cache_read: input * 2 })}`;
const words = (text, wait) => text.split(" ").map((word) => `model text ${JSON.stringify(`${word} `)}\nmodel wait ${wait}`).join("\n");

/** Starts an agent whose model plays a script, and opens a session in a project. */
async function start(name, project, script, args = []) {
  const file = `${home}/${name}.acp`;
  writeFileSync(file, `model window 200000\n${script}\n`);
  const agent = new Agent(program, ["acp", "--model", `script:${file}`, ...args], env, `${home}/${project}`);
  return { agent, session: await agent.session(`${home}/${project}`) };
}

const fix = [
  // What follows a call belongs to the next answer.
  "model wait 400", words("I will look at the function first.", 40), usage(9200, 60), `model tool read {"filePath":"basket.js"}`,
  "model wait 300", usage(9400, 30), `model tool read {"filePath":"cart.js"}`,
  "model wait 500", usage(9900, 45), `model tool edit {"filePath":"cart.js","oldString":"item.price","newString":"item.price * item.count"}`,
  "model wait 900", usage(10400, 120), `model tool bash {"command":"sleep 0.7; echo 12 tests passed","description":"Run the tests"}`,
  "model wait 300", words("The total now counts how many of each item are in the cart, and all tests pass.", 60), usage(10900, 80),
].join("\n");
const trace = `${home}/trace.jsonl`, html = `${home}/page.html`;
const dashboard = spawn(program, ["dashboard"], { env: { ...process.env, ...env }, stdio: ["ignore", "ignore", "pipe"] });
const url = await new Promise((resolve) => createInterface({ input: dashboard.stderr }).once("line", resolve));
const agents = [];
const browser = await launch();
const sizes = { wide: { width: 1280, height: 900 }, middle: { width: 820, height: 1000 }, narrow: { width: 400, height: 800 } };

/** Takes a picture of a page in each size, light and dark. */
async function pictures(name, address, prepare) {
  for (const colorScheme of ["light", "dark"]) {
    for (const [size, viewport] of Object.entries(sizes)) {
      const { page, problems } = await openPage(browser, address, new URL(address).protocol === "file:" ? "file://" : new URL(address).origin, { viewport, colorScheme });
      await prepare(page);
      await page.screenshot({ path: `${folder}/${name}-${size}-${colorScheme}.png` });
      if (size === "wide" && colorScheme === "light" && name === "dashboard") await page.screenshot({ path: `${folder}/${name}.png`, fullPage: true });
      if (size === "wide" && colorScheme === "light" && name === "trace-timing") {
        await page.setViewportSize({ width: 1280, height: 560 });
        await page.screenshot({ path: `${folder}/${name}.png` });
      }
      if (problems.length > 0) throw new Error(problems.join("\n"));
      await page.close();
    }
  }
}

try {
  mkdirSync(folder, { recursive: true });
  // The agents start after the dashboard, so that it counts everything.
  const shop = await start("shop", "shop", fix, ["--trace", trace]);
  const prose = "A post about small programs that do one thing, and why they last longer than large ones.";
  const blog = await start("blog", "blog", [usage(31000, 900), `model tool list {"path":"."}`, words(Array(12).fill(prose).join(" "), 120), "model hang"].join("\n"));
  const broken = await start("tools", "tools", "model fail broken");
  agents.push(shop.agent, blog.agent, broken.agent);
  shop.agent.patience = 800;
  // Only what happens after an agent was found is counted.
  const state = () => fetch(`${new URL(url).origin}/state`, { headers: { authorization: `Bearer ${new URL(url).searchParams.get("token")}` } });
  await until("all agents are found", async () => (await (await state()).json()).processes.length === 3);
  await broken.agent.prompt(broken.session, "List the tools that nobody uses");
  void blog.agent.prompt(blog.session, "Write a post about small programs");
  await shop.agent.prompt(shop.session, "The cart ignores how many of an item there are. Fix it.");
  await pictures("dashboard", url, async (page) => {
    await until("all agents are shown", async () => (await page.locator("#processes tbody tr").count()) === 3);
    await page.waitForTimeout(3000);
  });
  await shop.agent.end();
  execFileSync(program, ["trace", trace, "--html", html], { env: { ...process.env, ...env } });
  for (const view of ["sequence", "timing", "errors", "profile"]) {
    await pictures(`trace-${view}`, `file://${html}`, async (page) => { await page.click(`[data-tab=${view}]`); await page.mouse.move(0, 0); await page.waitForTimeout(200); });
  }
  console.log("ok");
} finally {
  await browser.close();
  for (const agent of agents) agent.child.kill("SIGKILL");
  dashboard.kill("SIGTERM");
  rmSync(home, { recursive: true });
}
