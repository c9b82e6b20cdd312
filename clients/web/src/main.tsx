import "@fontsource-variable/archivo/wdth.css";
import "./style/tokens.css";
import "./style/base.css";
import "./style/parts.css";
// Imported first: it moves the code of an invite link into the fragment, which the next modules read.
import "./leagues/open-link.ts";
// Imported before the router, so that its listeners run first.
import "./ui/scroll.ts";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app.tsx";

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <App />
    </StrictMode>,
  );
}
