import { useRef, useState } from "react";
import { flushSync } from "react-dom";
import { matchday, useMe } from "../../session/session.ts";
import { Ask } from "../../ui/question.tsx";
import { notifyTabs } from "../../ui/refresh.ts";
import { Avatar } from "../avatar.tsx";
import { decodePicture } from "./encode.ts";
import "./picture.css";
import { PictureEditor } from "./picture-editor.tsx";

/** The fan's picture: choose, crop, upload and remove it. */
export function PictureForm() {
  const { me, reload } = useMe();
  const [picture, setPicture] = useState<ImageBitmap>();
  const [isReading, setReading] = useState(false);
  const [message, setMessage] = useState("");
  const [fault, setFault] = useState("");
  const field = useRef<HTMLInputElement>(null);
  async function choose(file: File | undefined) {
    if (!file) return;
    setMessage("");
    setFault("");
    setReading(true);
    try {
      setPicture(await decodePicture(file));
    } catch {
      setFault("This file can't be opened as a picture. Choose a JPEG, PNG or WebP file.");
    }
    setReading(false);
  }
  function close() {
    picture?.close();
    // Keyboard users continue from the field, which is visible again.
    flushSync(() => setPicture(undefined));
    field.current?.focus();
  }
  function changed(what: string) {
    setMessage(what);
    reload();
    notifyTabs();
  }
  return (
    <section className="card stack" aria-labelledby="picture">
      <h2 id="picture">Picture</h2>
      {picture ? (
        <PictureEditor
          picture={picture}
          cancel={(isUploading) => {
            close();
            // The service may have stored the picture already.
            if (isUploading) changed("");
          }}
          uploaded={() => {
            close();
            changed("Your new picture is saved.");
          }}
        />
      ) : (
        <div className="picture">
          <Avatar user={me} size={96} />
          <div className="picture-actions">
            <label className="button quiet low file-button" aria-busy={isReading}>
              {isReading ? "Opening…" : me.avatar_url ? "Change picture" : "Choose a picture"}
              <input
                ref={field}
                type="file"
                accept="image/*"
                onChange={({ currentTarget }) => {
                  choose(currentTarget.files?.[0]);
                  // The same file can be chosen again.
                  currentTarget.value = "";
                }}
              />
            </label>
            {me.avatar_url && (
              <Ask
                label="Remove picture"
                action="Remove"
                act={async () => {
                  await matchday.delete("/api/auth/me/avatar");
                  changed("Your picture is removed.");
                }}
              >
                Remove your picture? Others then see your initials.
              </Ask>
            )}
          </div>
        </div>
      )}
      {fault && (
        <p className="notice" role="alert">
          {fault}
        </p>
      )}
      <p role="status" className={message ? "small saved-mark" : "unseen"}>
        {message}
      </p>
    </section>
  );
}
