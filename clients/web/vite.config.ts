import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

// Where the service is. The page asks its own address, and is passed on: so the service need not allow other origins.
const service = process.env.MATCHDAY_URL ?? "http://127.0.0.1:8080";
const proxy = Object.fromEntries(["/api", "/demo", "/.well-known/matrix"].map((path) => [path, service]));

/** The token lies where every script of the page can read it: no foreign script may run. Not in development, where
 * Vite puts scripts into the page. Chat is at another address, which only the service knows. */
const policy: Plugin = {
  name: "content-security-policy",
  apply: "build",
  transformIndexHtml: () => [
    {
      tag: "meta",
      injectTo: "head-prepend",
      attrs: {
        "http-equiv": "Content-Security-Policy",
        content:
          "default-src 'self'; connect-src 'self' http: https:; img-src 'self' http: https: data:; style-src 'self' 'unsafe-inline'; object-src 'none'; base-uri 'none'",
      },
    },
  ],
};

export default defineConfig({
  plugins: [react(), policy],
  base: "./",
  server: { proxy },
  preview: { proxy },
  // The Matrix library is large, and is only fetched by those who open a chat.
  build: { target: "es2022", chunkSizeWarningLimit: 1500 },
});
