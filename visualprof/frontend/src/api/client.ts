import type { ErrorBody, FieldError, SpanState } from "./model";
import { requestToken, sessionHeaders } from "./session";

// Addresses are relative to the page, so that the dashboard also works below a proxy's path prefix.
const ROOT = "api/v1/";

export type Query = Record<string, string | number | null | undefined>;

/** A failed request: the server's message, or status 0 if the server did not answer. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly hint: string | null = null,
    readonly retryAfterS: number | null = null,
    readonly state: SpanState | null = null,
    readonly progress: number | null = null,
    /** Errors per field of a rejected job. */
    readonly fields: readonly FieldError[] = [],
    /** Page of the documentation that explains the error, such as "formats#ranks". */
    readonly page: string | null = null,
  ) {
    super(message);
  }
}

/** Return the address of a route. Empty parameters are omitted, so that equal requests have equal addresses. */
export function address(path: string, query: Query = {}): string {
  const params = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") params.set(key, String(value));
  }
  const text = params.toString();
  return ROOT + path + (text ? `?${text}` : "");
}

async function responseError(response: Response): Promise<ApiError> {
  const body = (await response.json().catch(() => null)) as (Partial<ErrorBody> & { errors?: FieldError[] }) | null;
  const retry = Number(response.headers.get("Retry-After"));
  return new ApiError(
    response.status,
    body?.error ?? `${response.status} ${response.statusText}`,
    body?.hint ?? null,
    Number.isFinite(retry) && retry > 0 ? retry : null,
    body?.state ?? null,
    body?.progress ?? null,
    body?.errors ?? [],
    body?.page ?? null,
  );
}

export function asError(failure: unknown): ApiError {
  return failure instanceof ApiError ? failure : new ApiError(0, String(failure));
}

export interface Answer<T> {
  body: T;
  etag: string | null;
}

/** The content of a report file, which answers in place of a server (src/report). */
export interface OfflineReport {
  readonly madeMs: number;
  readonly stepRange: string | null;
  answer: (url: string) => Response;
  holdsRun: (run: string) => boolean;
  hasStep: (name: string) => boolean;
  nearestTile: (kind: "g" | "c" | "p", id: number, level: number, index: number) => [level: number, index: number];
}

export let offlineReport: OfflineReport | null = null;

export function setOfflineReport(report: OfflineReport): void {
  offlineReport = report;
}

let declined = false;

/** Ask once for a missing token. After a refusal, ask again only when the user starts an action. */
async function askForToken(asks: boolean): Promise<boolean> {
  if (declined && asks) return false;
  const entered = await requestToken();
  declined = !entered;
  return entered;
}

/**
 * Send a request and return its response (success or 304). Throws `ApiError`, or the abort error. `again`: retry after
 * logging in.
 */
export async function fetchApi(url: string, options: RequestInit = {}, again = true): Promise<Response> {
  const headers = { ...(options.headers as Record<string, string> | undefined), ...sessionHeaders() };
  const response = await (
    offlineReport ? Promise.resolve(offlineReport.answer(url)) : fetch(url, { ...options, headers })
  ).catch((error: unknown) => {
    throw options.signal?.aborted ? error : new ApiError(0, String(error));
  });
  if (response.status === 401 && again && (await askForToken(options.method === undefined)))
    return fetchApi(url, options);
  if (!response.ok && response.status !== 304) throw await responseError(response);
  return response;
}

/** Send a GET request. Null means 304: nothing has changed since `etag`. */
export async function get<T>(
  url: string,
  { signal, etag }: { signal?: AbortSignal; etag?: string | null } = {},
): Promise<Answer<T> | null> {
  const response = await fetchApi(url, { headers: etag ? { "If-None-Match": etag } : {}, signal: signal ?? null });
  return response.status === 304 ? null : { body: (await response.json()) as T, etag: response.headers.get("ETag") };
}

/** Send a request that changes data, or a query that is too long for a URL. A file is sent as its bytes. */
export async function send<T>(
  method: "POST" | "PUT" | "PATCH" | "DELETE",
  url: string,
  body?: unknown,
  signal?: AbortSignal,
  again = true,
): Promise<T> {
  const type = body instanceof Blob ? "application/octet-stream" : "application/json";
  const content =
    body === undefined
      ? {}
      : { body: body instanceof Blob ? body : JSON.stringify(body), headers: { "Content-Type": type } };
  return (await (await fetchApi(url, { method, ...content, signal: signal ?? null }, again)).json()) as T;
}
