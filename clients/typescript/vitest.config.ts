import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    projects: [
      { test: { name: "pure", include: ["test/*.test.ts"] } },
      // Against the service at MATCHDAY_URL, with the demo in it.
      { test: { name: "service", include: ["test/service/*.test.ts"], testTimeout: 30_000 } },
    ],
  },
});
