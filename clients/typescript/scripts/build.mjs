// tsc leaves declarations alone that it did not make.
import { execFileSync } from "node:child_process";
import { cp, rm } from "node:fs/promises";

await rm("dist", { recursive: true, force: true });
execFileSync("tsc", ["-p", "."], { stdio: "inherit" });
await cp("src/schema.d.ts", "dist/schema.d.ts");
