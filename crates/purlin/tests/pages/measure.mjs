// Measures a page, for `cargo xtask bench seeing`: `measure.mjs dashboard URL` or `measure.mjs trace URL`. Prints JSON.
import { launch } from "./browser.mjs";

const [, , what, url] = process.argv;
const browser = await launch();
try {
  const page = await (await browser.newContext({ viewport: { width: 1280, height: 800 } })).newPage();
  const measured = {};
  const begin = Date.now();
  await page.goto(url);
  await page.locator(what === "trace" ? ".seq .row" : "#sessions tbody tr").first().waitFor({ timeout: 120_000 });
  measured.shown = Date.now() - begin;
  const client = await page.context().newCDPSession(page);
  await client.send("Performance.enable");
  const busy = async () => (await client.send("Performance.getMetrics")).metrics.find((one) => one.name === "TaskDuration").value;
  // All work of the page in ten seconds: the dashboard draws once in each.
  const before = await busy();
  await page.waitForTimeout(10_000);
  measured.second = ((await busy()) - before) * 100;
  // The work of a frame: from its first callback until everything that it caused was laid out and painted.
  const frames = await page.evaluate(async ({ seconds, scrolls }) => {
    const list = document.querySelector(".seq .scroll");
    const times = [];
    const end = performance.now() + seconds * 1000;
    const channel = new MessageChannel();
    let began = 0, next;
    channel.port1.onmessage = () => { times.push(performance.now() - began); next(); };
    while (performance.now() < end) {
      await new Promise((resolve) => {
        next = resolve;
        requestAnimationFrame(() => {
          began = performance.now();
          if (scrolls && list) list.scrollTop += 400;
          channel.port2.postMessage(0);
        });
      });
    }
    return times.sort((a, b) => a - b);
  }, { seconds: 10, scrolls: what === "trace" });
  measured.frames = frames.length;
  measured.p50 = frames[Math.floor(frames.length / 2)];
  measured.p95 = frames[Math.floor(frames.length * 0.95)];
  measured.max = frames.at(-1);
  await client.send("HeapProfiler.collectGarbage");
  measured.heap = (await client.send("Runtime.getHeapUsage")).usedSize;
  console.log(JSON.stringify(measured));
} finally {
  await browser.close();
}
