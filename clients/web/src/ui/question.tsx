import { type ReactNode, useEffect, useRef, useState } from "react";
import { flushSync } from "react-dom";
import { errorMessage } from "./states.tsx";

interface QuestionProps {
  children: ReactNode;
  /** Label of the button that confirms. */
  action: string;
  act: () => Promise<void>;
  cancel: () => void;
}

/** Asks for confirmation in place. The text gets the focus, so that keyboard and screen reader users start there. */
export function Question({ children, action, act, cancel }: QuestionProps) {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const top = useRef<HTMLParagraphElement>(null);
  useEffect(() => top.current?.focus(), []);
  async function confirm() {
    setBusy(true);
    setError(undefined);
    try {
      await act();
    } catch (error) {
      setError(error);
      setBusy(false);
    }
  }
  return (
    <div className="question">
      <p ref={top} tabIndex={-1}>
        {children}
      </p>
      {error !== undefined && (
        <p className="notice" role="alert">
          {errorMessage(error)}
        </p>
      )}
      <div className="question-actions">
        <button type="button" className="button low" onClick={confirm} disabled={isBusy}>
          {action}
        </button>
        <button type="button" className="button quiet low" onClick={cancel}>
          Cancel
        </button>
      </div>
    </div>
  );
}

interface AskProps extends Omit<QuestionProps, "cancel"> {
  label: string;
}

/** Button that asks for confirmation before it acts. */
export function Ask({ label, children, action, act }: AskProps) {
  const [isOpen, setOpen] = useState(false);
  const opener = useRef<HTMLButtonElement>(null);
  function close() {
    // Keyboard users continue from the button, which is visible again.
    flushSync(() => setOpen(false));
    opener.current?.focus();
  }
  if (isOpen) {
    return (
      <Question
        action={action}
        act={async () => {
          await act();
          close();
        }}
        cancel={close}
      >
        {children}
      </Question>
    );
  }
  return (
    <button ref={opener} type="button" className="button quiet low" onClick={() => setOpen(true)}>
      {label}
    </button>
  );
}
