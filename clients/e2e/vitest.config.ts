import { defineConfig } from "vitest/config";

// One browser after the other: the machine may be small, and the tests tell one story.
const shared = { testTimeout: 120_000, hookTimeout: 60_000, fileParallelism: false };
export default defineConfig({
  root: import.meta.dirname,
  test: {
    projects: [
      { test: { ...shared, name: "story", include: ["*.test.ts"] } },
      { test: { ...shared, name: "pictures", include: ["pictures.ts"] } },
    ],
  },
});
