// Writes src/schema.d.ts from an OpenAPI document:  npm run generate -- FILE   (`matchday openapi` prints the document)
// With --check it only compares, and fails if they differ.
import { readFile, writeFile } from "node:fs/promises";
import { resolve } from "node:path";
import openapiTS, { astToString } from "openapi-typescript";

const place = new URL("../src/schema.d.ts", import.meta.url);
const check = process.argv.includes("--check");
const file = process.argv.slice(2).find((argument) => !argument.startsWith("--"));
if (!file) {
  console.error("usage: npm run generate -- [--check] FILE");
  process.exit(2);
}
// npm runs scripts in the package's folder; the caller's folder is where a relative name counts from.
const source = await readFile(resolve(process.env.INIT_CWD ?? ".", file), "utf8");
// A default makes nothing required of a request: whoever leaves it out gets the default.
const ast = await openapiTS(source, { defaultNonNullable: false });
const text = `// Written by \`npm run generate\`; not to be changed by hand.\n\n${astToString(ast)}`;
if (!check) {
  await writeFile(place, text);
} else if ((await readFile(place, "utf8").catch(() => "")) !== text) {
  console.error("src/schema.d.ts is not what the document says: npm run generate -- FILE");
  process.exit(1);
}
