import { MatchdayError } from "@matchday/client";
import { type FormEvent, useState } from "react";
import { closeChat } from "../chat/matrix.ts";
import { chatCredentials, matchday, useMe } from "../session/session.ts";
import { UsernameField } from "../session/username.tsx";
import { Name } from "../ui/name.tsx";
import { Question } from "../ui/question.tsx";
import { notifyTabs } from "../ui/refresh.ts";
import { errorMessage } from "../ui/states.tsx";

/** The fan's username. A generated one can be replaced once. */
export function UsernameForm() {
  const { me } = useMe();
  return (
    <section className="card stack" aria-labelledby="own-username">
      <h2 id="own-username">Username</h2>
      <p>
        <strong>
          <Name>{me.username}</Name>
        </strong>
      </p>
      {me.username_is_generated ? <Replace /> : <p className="small soft">Your username can't be changed.</p>}
    </section>
  );
}

function Replace() {
  const { reload } = useMe();
  const [username, setUsername] = useState("");
  const [isAsking, setAsking] = useState(false);
  const [error, setError] = useState<unknown>();
  const fault = error instanceof MatchdayError ? error.errors.username?.[0] : undefined;
  const wanted = username.trim();
  function submit(event: FormEvent) {
    event.preventDefault();
    setError(undefined);
    setAsking(wanted !== "");
  }
  async function replace() {
    try {
      const { data } = await matchday.post("/api/auth/update-user-info", { body: { username: wanted } });
      // The chat account has the username in its id, so a new one replaces it.
      chatCredentials.save(data.matrix_credentials ?? null);
      closeChat();
      reload();
      notifyTabs();
    } catch (error) {
      setError(error);
      setAsking(false);
    }
  }
  return (
    <form className="stack" onSubmit={submit} noValidate aria-label="New username">
      <p className="small soft">We chose this username for you. You can replace it once.</p>
      <UsernameField
        label="New username"
        help="You can't change it again later."
        value={username}
        setValue={(value) => {
          setUsername(value);
          setAsking(false);
          setError(undefined);
        }}
        fault={fault}
      />
      {error !== undefined && !fault && (
        <p className="notice" role="alert">
          {errorMessage(error)}
        </p>
      )}
      {isAsking ? (
        <Question action="Change username" act={replace} cancel={() => setAsking(false)}>
          Change your username to <Name>{wanted}</Name>? You can do this only once.
        </Question>
      ) : (
        <div>
          <button type="submit" className="button" disabled={wanted === ""}>
            Change username
          </button>
        </div>
      )}
    </form>
  );
}
