#!/usr/bin/env node
// Starts the program in the package for this platform. Where Node.js can, it becomes the program.
"use strict";

const { constants } = require("node:os");

const name = `@purlin/${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`${name}/bin/purlin`);
} catch {
  console.error(
    `purlin: ${name} is not installed. There are packages for Linux with glibc 2.28 or newer on x64. ` +
      "If yours is one, install again without `--omit=optional`; otherwise build from source.",
  );
  process.exit(1);
}

const words = process.argv.slice(2);
if (typeof process.execve === "function") {
  // It warns that the function is new, on a stream that editors show to users.
  process.removeAllListeners("warning");
  process.execve(program, [program, ...words], process.env);
}

const child = require("node:child_process").spawn(program, words, { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (err) => {
  console.error(`purlin: ${program} does not start: ${err.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : code));
