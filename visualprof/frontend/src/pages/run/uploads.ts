// Files on their way to the server, one after the other: fetch cannot tell how far an upload is.
import { reactive } from "vue";
import { address, ApiError, as_error, ask_token, is_trusted, send, session_headers, type ErrorBody, type FilesAnswer, type UploadAnswer } from "../../api";
import { t } from "../../locales";

interface Sending {
  name: string;
  size_bytes: number;
  /** 0..1; 1 while the server looks at the file. */
  progress: number;
  error: ApiError | null;
  cancel: () => void;
}

/** Those under way, and those that failed until they are dismissed. */
export const sendings = reactive<Sending[]>([]);

let last: Promise<unknown> = Promise.resolve();

export function dismiss(one: Sending): void {
  const place = sendings.indexOf(one);
  if (place >= 0) sendings.splice(place, 1);
}

function refusal(request: XMLHttpRequest): ApiError {
  const body = (request.response ?? null) as Partial<ErrorBody> | null;
  return new ApiError(request.status, body?.error ?? `${request.status} ${request.statusText}`, body?.hint ?? null);
}

function transfer(file: File, part: boolean, one: Sending, request: XMLHttpRequest): Promise<UploadAnswer> {
  return new Promise((resolve, reject) => {
    request.open("POST", address("uploads", { name: file.name, part: part ? "true" : null }));
    request.responseType = "json";
    for (const [name, value] of Object.entries(session_headers())) request.setRequestHeader(name, value);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.upload.onprogress = (event) => (one.progress = event.total > 0 ? event.loaded / event.total : 0);
    request.onload = () => (request.status < 300 ? resolve(request.response as UploadAnswer) : reject(refusal(request)));
    request.onerror = () => reject(new ApiError(0, "the upload broke off"));
    request.send(file);
  });
}

/** What is read into memory to know a file by it. A larger one is sent. */
const MOST_KNOWN = 1 << 30;

/** The answer to a file that the server has; no browser tells over plain http from another machine. */
async function known(file: File, part: boolean): Promise<UploadAnswer | null> {
  if (!isSecureContext || file.size > MOST_KNOWN) return null;
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", await file.arrayBuffer()));
  const blob = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return (await send<FilesAnswer>("POST", address("uploads/known"), { blob, name: file.name, part })).files[0] ?? null;
}

/** The server's answer (part: the file has weights of a model); null when it was cancelled or refused, which `sendings` then tells. */
export function upload(file: File, part = false): Promise<UploadAnswer | null> {
  const request = new XMLHttpRequest();
  let cancelled = false;
  const one = reactive<Sending>({
    name: file.name, size_bytes: file.size, progress: 0, error: null,
    cancel: () => {
      cancelled = true;
      request.abort();
      dismiss(one);
    },
  });
  sendings.push(one);

  async function run(): Promise<UploadAnswer | null> {
    try {
      // A file is not sent to be refused.
      if (!(await is_trusted()) && !(await ask_token())) throw new ApiError(401, t("session.lacking"));
      const there = await known(file, part);
      if (cancelled) return null;
      const answer = there ?? await Promise.race([transfer(file, part, one, request), new Promise<null>((resolve) => (request.onabort = () => resolve(null)))]);
      dismiss(one);
      return answer;
    } catch (failure) {
      one.error = as_error(failure);
      return null;
    }
  }

  const mine = last.then(run);
  last = mine;
  return mine;
}
