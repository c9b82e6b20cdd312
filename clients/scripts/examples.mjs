// Extracts the examples of README.md in the working directory to .examples/, one module each, so that the type check
// covers them.
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";

await rm(".examples", { recursive: true, force: true });
await mkdir(".examples");
const examples = [...(await readFile("README.md", "utf8")).matchAll(/```ts\n([\s\S]*?)```/g)];
for (const [number, [, code]] of examples.entries()) {
  await writeFile(`.examples/readme-${number + 1}.ts`, `${code}\nexport {};\n`);
}
