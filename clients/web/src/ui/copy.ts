import { useEffect, useState } from "react";

/** Milliseconds for which a message about copying is shown. */
const feedbackTime = 4_000;

interface Copying {
  /** Message for the fan; empty before copying, and after some seconds. */
  message: string;
  isCopied: boolean;
  copy: () => Promise<void>;
}

/** Copies a text. Where the browser cannot, `select` selects the text, so that the fan can copy it. */
export function useCopy(text: string, what: string, select: () => void): Copying {
  const [message, setMessage] = useState("");
  const copied = `${what} copied`;
  useEffect(() => {
    if (!message) return;
    const timer = setTimeout(() => setMessage(""), feedbackTime);
    return () => clearTimeout(timer);
  }, [message]);
  async function copy() {
    setMessage("");
    try {
      // Missing outside of secure contexts (HTTPS or localhost), where the call throws.
      await navigator.clipboard.writeText(text);
      setMessage(copied);
    } catch {
      select();
      setMessage(`Copy the selected ${what.toLowerCase()}`);
    }
  }
  return { message, isCopied: message === copied, copy };
}
