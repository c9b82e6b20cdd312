// Builds dist/ of the package in the working directory. The schema is copied separately, because tsc does not emit
// hand-written or generated .d.ts files.
import { execFileSync } from "node:child_process";
import { cp, rm } from "node:fs/promises";

await rm("dist", { recursive: true, force: true });
execFileSync("tsc", ["-p", "."], { stdio: "inherit" });
await cp("src/schema.d.ts", "dist/schema.d.ts");
