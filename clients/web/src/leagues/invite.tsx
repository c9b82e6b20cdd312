import { type ReactNode, useRef } from "react";
import { useCopy } from "../ui/copy.ts";
import { formatCode, inviteLink } from "./invite-code.ts";

/** Code and link of a league, to copy or to share with the share sheet of the device. */
export function Invite({ code, name, children }: { code: string; name: string; children?: ReactNode }) {
  const link = inviteLink(code);
  const field = useRef<HTMLInputElement>(null);
  const { message, isCopied, copy } = useCopy(link, "Link", () => field.current?.select());
  async function share() {
    try {
      await navigator.share({ title: name, text: `Join my league "${name}"`, url: link });
    } catch {
      // The fan closed the share sheet, or the device cannot share. The link can still be copied.
    }
  }
  return (
    <section className="card invite" aria-labelledby="invite">
      <header>
        <h2 id="invite">Share the link</h2>
        <p className="soft small">
          Code <strong className="invite-code">{formatCode(code)}</strong>
        </p>
      </header>
      <div className="field">
        <label className="unseen" htmlFor="invite-link">
          Invite link
        </label>
        <input
          ref={field}
          id="invite-link"
          className="invite-link"
          readOnly
          value={link}
          onFocus={({ currentTarget }) => currentTarget.select()}
        />
      </div>
      <div className="invite-actions">
        <button type="button" className="button" onClick={copy}>
          {isCopied ? "Copied ✓" : "Copy link"}
        </button>
        {"share" in navigator && (
          <button type="button" className="button quiet" onClick={share}>
            Share…
          </button>
        )}
      </div>
      <p role="status" className={message && !isCopied ? "small soft" : "unseen"}>
        {message}
      </p>
      {children}
    </section>
  );
}
