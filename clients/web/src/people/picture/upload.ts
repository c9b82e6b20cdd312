import { MatchdayError } from "@matchday/client";
import { matchday } from "../../session/session.ts";

/** Milliseconds after which an upload without a response fails. The service ends it earlier (`http.deadline`). */
const timeout = 60_000;

/** Uploads the picture of the fan. Uses XMLHttpRequest, because `fetch` does not report the progress of an upload. */
export async function uploadPicture(
  picture: Blob,
  onProgress: (share: number) => void,
  signal: AbortSignal,
): Promise<void> {
  const token = await matchday.token();
  signal.throwIfAborted();
  const response = await new Promise<{ status: number; headers: Headers; body: unknown }>((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", "/api/auth/me/avatar");
    request.setRequestHeader("Authorization", `Bearer ${token}`);
    request.setRequestHeader("Content-Type", picture.type);
    request.timeout = timeout;
    request.upload.onprogress = ({ loaded, total }) => onProgress(total > 0 ? loaded / total : 0);
    request.onload = () => resolve({ status: request.status, headers: headersOf(request), body: bodyOf(request) });
    request.onerror = () => reject(MatchdayError.noResponse(undefined));
    request.ontimeout = request.onerror;
    request.onabort = () => reject(signal.reason);
    signal.addEventListener("abort", () => request.abort(), { once: true });
    request.send(picture);
  });
  const { status, headers, body } = response;
  if (status === 200) return;
  // The client ends the session after its own requests only.
  if (status === 401) await matchday.get("/api/auth/me").catch(() => {});
  throw MatchdayError.from(new Response(null, { status, headers }), body);
}

function headersOf(request: XMLHttpRequest): Headers {
  const headers = new Headers();
  for (const name of ["Retry-After", "X-Request-Id"]) {
    const value = request.getResponseHeader(name);
    if (value !== null) headers.set(name, value);
  }
  return headers;
}

function bodyOf(request: XMLHttpRequest): unknown {
  try {
    return JSON.parse(request.responseText);
  } catch {
    return undefined;
  }
}
