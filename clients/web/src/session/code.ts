const separator = "[\\s.\\-–—]?";
const six = new RegExp(`(?<!\\d)\\d(?:${separator}\\d){5}(?!\\d)`);

/** Extracts the six digits from typed or pasted text: "600 424", "600-424", "Your code is 600424. It is valid for 5 minutes." */
export function codeIn(text: string): string {
  const latin = text.normalize("NFKC").replace(/[٠-٩۰-۹]/g, (digit) => String((digit.codePointAt(0) ?? 0) & 0xf));
  return (six.exec(latin)?.[0] ?? latin).replace(/\D/g, "").slice(0, 6);
}
