/** A name that a person or a data provider chose. It may be written from right to left, which must not turn the text around. */
export function Name({ children, className }: { children: string; className?: string }) {
  return (
    <bdi dir="auto" className={className}>
      {children}
    </bdi>
  );
}
