import { defineConfig } from "vitest/config";
import { BaseSequencer } from "vitest/node";

/** By name: the story expects the demo as it is, and the tests after it add matches. */
class ByName extends BaseSequencer {
  override async sort(files: Parameters<BaseSequencer["sort"]>[0]) {
    return files.sort((one, other) => one.moduleId.localeCompare(other.moduleId));
  }
}

// One browser after the other: the machine may be small, and the tests tell one story.
const shared = { testTimeout: 120_000, hookTimeout: 60_000, fileParallelism: false };
export default defineConfig({
  root: import.meta.dirname,
  test: {
    sequence: { sequencer: ByName },
    projects: [
      { test: { ...shared, name: "story", include: ["*.test.ts"] } },
      { test: { ...shared, name: "pictures", include: ["pictures.ts"] } },
    ],
  },
});
