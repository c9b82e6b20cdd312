/** Logo of the app: a lantern in the centre circle. */
export function Mark({ size = 40 }: { size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <circle cx="16" cy="16" r="14.6" fill="none" stroke="currentColor" strokeOpacity=".55" strokeWidth="1.6" />
      <path d="M16 1.4v29.2" stroke="currentColor" strokeOpacity=".55" strokeWidth="1.6" />
      <circle cx="16" cy="16" r="6.6" fill="var(--lantern)" />
    </svg>
  );
}
