/** Letters and digits that cannot be mistaken for others. */
const pattern = /^[A-HJKMNP-Z2-9]{8}$/;

/** Code in typed or pasted text: "K7MPQ2RS", "k7mp-q2rs", or an invite link with a message around it. */
export function codeIn(text: string): string {
  const path = /\/join\/([^\s/?#]+)/.exec(text)?.[1];
  return (path ?? text).replace(/%20|[\s\-‐-―]/g, "").toUpperCase();
}

export const isCode = (code: string): boolean => pattern.test(code);

/** Code as it is shown: "K7MP-Q2RS". */
export const formatCode = (code: string): string => code.replace(/^(.{4})(?=.)/, "$1-");

/** Code of the invitation that the fan opened; `undefined` without one. */
export function invitedCode(): string | undefined {
  return location.hash.startsWith("#/join/") ? codeIn(location.hash) : undefined;
}

/** Link that opens the app and joins the league. */
export function inviteLink(code: string): string {
  return new URL(`${import.meta.env.BASE_URL}join/${code}`, location.origin).href;
}
