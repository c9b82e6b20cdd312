/** Name from a user or data provider. Isolated, so that a right-to-left name does not reorder the text around it. */
export function Name({ children, className }: { children: string; className?: string }) {
  return (
    <bdi dir="auto" className={className}>
      {children}
    </bdi>
  );
}
