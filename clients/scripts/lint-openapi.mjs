// Checks OpenAPI documents with two linters:  npm run lint:openapi -- FILE…
// spectral.yaml and redocly.yaml contain the rules. Warnings fail too.
import { execFileSync } from "node:child_process";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";

// npm runs scripts in the folder of package.json, but relative paths are relative to the folder of the caller.
const files = process.argv.slice(2).map((file) => resolve(process.env.INIT_CWD ?? ".", file));
const folder = fileURLToPath(new URL("..", import.meta.url));
const env = { ...process.env, REDOCLY_TELEMETRY: "off", REDOCLY_SUPPRESS_UPDATE_NOTICE: "true" };
const run = (program, ...options) =>
  execFileSync(program, [...options, ...files], { cwd: folder, env, stdio: "inherit" });

if (files.length === 0) {
  console.error("usage: npm run lint:openapi -- FILE…");
  process.exit(2);
}
try {
  run("spectral", "lint", "--ruleset", "spectral.yaml", "--fail-severity", "warn", "--quiet");
  run("redocly", "lint", "--config", "redocly.yaml");
} catch {
  process.exit(1);
}
