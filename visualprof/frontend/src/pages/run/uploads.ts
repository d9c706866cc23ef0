// Files on their way to the server, one after the other: fetch cannot tell how far an upload is.
import { reactive } from "vue";
import { address, ApiError, as_error, ask_token, is_trusted, session_headers, type ErrorBody, type UploadAnswer } from "../../api";
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
      if (cancelled) return null;
      const answer = await Promise.race([transfer(file, part, one, request), new Promise<null>((resolve) => (request.onabort = () => resolve(null)))]);
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
