import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

// URL of the service. The development server forwards requests to it, so the service needs no CORS settings.
const service = process.env.MATCHDAY_URL ?? "http://127.0.0.1:8080";
const proxy = Object.fromEntries(["/api", "/demo", "/.well-known/matrix"].map((path) => [path, service]));

/** Further origins that the built page may connect to, separated by spaces: the homeserver, and the service if it has
 * another origin than the page. `http://127.0.0.1:*` allows every port of this machine. */
const origins = (process.env.WEB_ORIGINS ?? "").split(/\s+/).filter(Boolean);
for (const origin of origins) {
  if (!/^https?:\/\/[^\s/;,'"]+$/.test(origin))
    throw new Error(`WEB_ORIGINS: ${origin} is not an origin like https://chat.example.org`);
}

/** Every script of the page can read the token, so the policy blocks third-party scripts and unknown origins. It is not used
 * in development, because Vite injects scripts. `deploy/proxy` sends the same policy as a header, with `frame-ancestors`,
 * which has no effect in a meta element. */
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
          // Feeds provide the URLs of crests, which may be on any host.
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
  // Invite links have a path (`/join/K7MPQ2RS`), so the URLs of the assets must not depend on it.
  base: "/",
  server: { proxy },
  preview: { proxy },
  // The Matrix library exceeds the default warning limit. It is loaded only when the fan opens a chat.
  build: { target: "es2022", chunkSizeWarningLimit: 1500 },
});
