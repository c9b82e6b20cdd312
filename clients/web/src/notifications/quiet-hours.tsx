import type { Schemas } from "@matchday/client";
import { type FormEvent, useState } from "react";
import { errorMessage } from "../ui/states.tsx";
import { Switch } from "../ui/switch.tsx";

type Hours = Schemas["QuietHours"];
const usual = { from: "22:00", until: "08:00" };
const deviceZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

interface Props {
  hours: Hours | null;
  set: (hours: Hours | null) => Promise<void>;
}

/** A daily period without notifications, in the time zone of the device that sets it. */
export function QuietHours({ hours, set }: Props) {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const [message, setMessage] = useState("");
  async function save(quiet_hours: Hours | null) {
    setBusy(true);
    setError(undefined);
    setMessage("");
    try {
      await set(quiet_hours);
      setMessage("Saved");
    } catch (error) {
      setError(error);
    }
    setBusy(false);
  }
  return (
    <section className="card stack" aria-labelledby="quiet-hours">
      <header className="with-status">
        <h2 id="quiet-hours">Quiet hours</h2>
        <span role="status" className="small saved-mark">
          {message}
        </span>
      </header>
      <Switch
        label="Pause notifications every day"
        details="Notifications that fall into these hours aren't sent later"
        isOn={hours !== null}
        onChange={(isOn) => !isBusy && save(isOn ? { ...usual, time_zone: deviceZone() } : null)}
      />
      {hours && <Times key={JSON.stringify(hours)} hours={hours} isBusy={isBusy} save={save} />}
      {error !== undefined && (
        <p className="notice" role="alert">
          {errorMessage(error)}
        </p>
      )}
    </section>
  );
}

function Times({ hours, isBusy, save }: { hours: Hours; isBusy: boolean; save: (hours: Hours) => void }) {
  const [from, setFrom] = useState(hours.from);
  const [until, setUntil] = useState(hours.until);
  const zone = deviceZone();
  const isChanged = from !== hours.from || until !== hours.until || zone !== hours.time_zone;
  const isEmpty = from === until;
  function submit(event: FormEvent) {
    event.preventDefault();
    if (from && until && !isEmpty) save({ from, until, time_zone: zone });
  }
  return (
    <form className="stack" onSubmit={submit} noValidate aria-label="Quiet hours">
      <div className="quiet-times">
        <TimeField label="From" value={from} setValue={setFrom} isFaulty={isEmpty} />
        <TimeField label="Until" value={until} setValue={setUntil} isFaulty={isEmpty} />
      </div>
      {isEmpty ? (
        <p className="fault" role="alert">
          Choose two different times.
        </p>
      ) : (
        <p className="small soft">
          Times in {zoneName(hours.time_zone)}.
          {zone !== hours.time_zone && ` This device is in ${zoneName(zone)}; saving uses its time.`}
        </p>
      )}
      {isChanged && (
        <div>
          <button type="submit" className="button" disabled={isBusy || !from || !until || isEmpty}>
            {isBusy ? "Saving…" : "Save times"}
          </button>
        </div>
      )}
    </form>
  );
}

interface FieldProps {
  label: string;
  value: string;
  setValue: (value: string) => void;
  isFaulty: boolean;
}

function TimeField({ label, value, setValue, isFaulty }: FieldProps) {
  const id = `quiet-${label.toLowerCase()}`;
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <input
        id={id}
        className="numbers"
        type="time"
        required
        value={value}
        aria-invalid={isFaulty}
        onChange={({ target }) => setValue(target.value)}
      />
    </div>
  );
}

/** City of a time zone: "New York" for America/New_York. */
const zoneName = (zone: string) => (zone.split("/").at(-1) ?? zone).replaceAll("_", " ");
