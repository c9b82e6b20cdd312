import { defineConfig } from "vitest/config";
import { BaseSequencer } from "vitest/node";

const first = "story.test.ts";

/** Runs the files by name, after story.test.ts, which needs the unchanged demo data. The others add matches to it. */
class StoryFirst extends BaseSequencer {
  override async sort(files: Parameters<BaseSequencer["sort"]>[0]) {
    const key = ({ moduleId }: (typeof files)[number]) => (moduleId.endsWith(first) ? "" : moduleId);
    return files.sort((one, other) => key(one).localeCompare(key(other)));
  }
}

// One browser at a time: the machine may be small, and later tests depend on earlier ones.
// What a test polls for can wait for the homeserver, the stream and the layout.
const shared = {
  testTimeout: 120_000,
  hookTimeout: 60_000,
  fileParallelism: false,
  expect: { poll: { timeout: 20_000 } },
};
export default defineConfig({
  root: import.meta.dirname,
  test: {
    sequence: { sequencer: StoryFirst },
    projects: [
      { test: { ...shared, name: "story", include: ["*.test.ts"] } },
      { test: { ...shared, name: "pictures", include: ["pictures.ts"] } },
    ],
  },
});
