import { defineConfig } from "vitest/config";
import { BaseSequencer } from "vitest/node";

/** Runs the files by name: story.test.ts needs the unchanged demo data, and later files add matches to it. */
class ByName extends BaseSequencer {
  override async sort(files: Parameters<BaseSequencer["sort"]>[0]) {
    return files.sort((one, other) => one.moduleId.localeCompare(other.moduleId));
  }
}

// One browser at a time: the machine may be small, and later tests depend on earlier ones.
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
