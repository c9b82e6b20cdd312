/** Message about the size of a league, which the service names after its field. */
export function sizeFault(messages: readonly string[] | undefined): string | undefined {
  return messages?.[0]?.replace(/^The max members\b/, "The maximum");
}
