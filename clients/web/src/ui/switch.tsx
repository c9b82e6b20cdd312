interface Props {
  label: string;
  details: string;
  isOn: boolean;
  onChange: (isOn: boolean) => void;
}

export function Switch({ label, details, isOn, onChange }: Props) {
  return (
    <label className="switch">
      <span>
        {label}
        <span className="small soft">{details}</span>
      </span>
      <input
        type="checkbox"
        role="switch"
        checked={isOn}
        aria-checked={isOn}
        onChange={(event) => onChange(event.target.checked)}
      />
    </label>
  );
}
