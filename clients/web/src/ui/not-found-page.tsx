import { Link } from "wouter";
import { Page } from "./page.tsx";

/** Page of a link that leads nowhere. */
export function NotFoundPage() {
  return (
    <Page title="Page not found" className="not-found">
      <p className="soft">The link is wrong or out of date.</p>
      <p>
        <Link href="/" className="button">
          Go to matches
        </Link>
      </p>
    </Page>
  );
}
