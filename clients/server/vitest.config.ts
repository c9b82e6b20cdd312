import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    projects: [
      { test: { name: "pure", include: ["test/*.test.ts"] } },
      // Runs against the service at MATCHDAY_URL, with demo data.
      { test: { name: "service", include: ["test/service/*.test.ts"], testTimeout: 30_000 } },
    ],
  },
});
