/** Loads all pages of a list. The first response contains their number. */
export async function allPages<T>(
  load: (page: number) => Promise<{ data: T[]; meta: { last_page: number } }>,
): Promise<T[]> {
  const first = await load(1);
  const rest = Array.from({ length: Math.max(0, first.meta.last_page - 1) }, (_, index) => load(index + 2));
  return [first, ...(await Promise.all(rest))].flatMap(({ data }) => data);
}
