import type { Client, FetchResponse, MaybeOptionalInit } from "openapi-fetch";
import { MatchdayError } from "./error.js";

export type Method = "get" | "post" | "put" | "patch" | "delete";
export type PathsWith<Paths, M extends Method> = {
  [Path in keyof Paths]: Paths[Path] extends { [Key in M]: { responses: unknown } } ? Path : never;
}[keyof Paths];
export type Init<Paths, Path extends keyof Paths, M extends Method> = MaybeOptionalInit<
  Paths[Path],
  M & keyof Paths[Path]
>;
export type Arguments<I> = Record<never, never> extends I ? [init?: I] : [init: I];
/** Body of a successful response. */
export type BodyOf<Paths, Path extends keyof Paths, M extends Method> =
  Paths[Path] extends Record<M, infer Operation extends Record<string | number, unknown>>
    ? NonNullable<FetchResponse<Operation, object, "application/json">["data"]>
    : never;
/** Sends a request to a path of an OpenAPI description. */
export type CallOf<Paths, M extends Method> = <Path extends PathsWith<Paths, M>>(
  path: Path,
  ...init: Arguments<Init<Paths, Path, M>>
) => Promise<BodyOf<Paths, Path, M>>;

/** Returns a method of the client that returns the body of the response, and throws `MatchdayError` for an error. */
export function callOf<Paths extends object, M extends Method>(
  api: Client<Paths, "application/json">,
  method: Uppercase<M>,
): CallOf<Paths, M> {
  const send = api[method] as unknown as (
    ...call: unknown[]
  ) => Promise<{ data?: unknown; error?: unknown; response: Response }>;
  return (async (...call: unknown[]) => {
    const { data, error, response } = await send(...call);
    if (!response.ok) throw MatchdayError.from(response, error);
    return data;
  }) as CallOf<Paths, M>;
}
