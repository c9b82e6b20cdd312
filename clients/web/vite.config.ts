import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

// Where the service is. The page asks its own address, and is passed on: so the service need not allow other origins.
const service = process.env.MATCHDAY_URL ?? "http://127.0.0.1:8080";
const proxy = Object.fromEntries(["/api", "/demo", "/.well-known/matrix"].map((path) => [path, service]));

/** Other origins that the built page may connect to, separated by spaces: the homeserver's, and the service's if it is not
 * that of the page. `http://127.0.0.1:*` allows every port of this machine. */
const origins = (process.env.WEB_ORIGINS ?? "").split(/\s+/).filter(Boolean);
for (const origin of origins) {
  if (!/^https?:\/\/[^\s/;,'"]+$/.test(origin))
    throw new Error(`WEB_ORIGINS: ${origin} is not like https://chat.example.org`);
}

/** Every script of the page can read the token, so no foreign script may run, and the page connects to known origins only.
 * Not in development, where Vite puts scripts into the page. `deploy/proxy` sends the same as a header, with
 * `frame-ancestors`, which has no effect here. */
const policy: Plugin = {
  name: "content-security-policy",
  apply: "build",
  transformIndexHtml: () => [
    {
      tag: "meta",
      injectTo: "head-prepend",
      attrs: {
        "http-equiv": "Content-Security-Policy",
        content: [
          "default-src 'self'",
          ["connect-src 'self'", ...origins].join(" "),
          // Crests are at the addresses that feeds give.
          ["img-src 'self' https: data:", ...origins].join(" "),
          "style-src 'self' 'unsafe-inline'",
          "object-src 'none'",
          "base-uri 'none'",
          "form-action 'self'",
        ].join("; "),
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
