// Files on their way to the server, one after the other: fetch cannot tell how far an upload is.
import { reactive } from "vue";
import {
  address,
  ApiError,
  asError,
  ask,
  askToken,
  get,
  readSession,
  send,
  sessionHeaders,
  type ErrorBody,
  type FilesAnswer,
  type UploadAnswer,
  type Way,
} from "../api";
import { t } from "../locales";

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

/** Sends a body, of which `told` hears how much is there; where it goes past the server, nothing of the session goes along. */
function transfer(
  request: XMLHttpRequest,
  method: string,
  url: string,
  body: Blob,
  headers: Record<string, string>,
  told: (bytes: number) => void,
): Promise<unknown> {
  return new Promise((resolve, reject) => {
    request.open(method, url);
    request.responseType = "json";
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => told(event.loaded);
    request.onload = () => (request.status < 300 ? resolve(request.response) : reject(refusal(request)));
    request.onerror = () => reject(new ApiError(0, "the upload broke off"));
    request.onabort = () => reject(new ApiError(0, "the upload broke off"));
    request.send(body);
  });
}

const toServer = (file: File, part: boolean, one: Sending, request: XMLHttpRequest) =>
  transfer(
    request,
    "POST",
    address("uploads", { name: file.name, part: part ? "true" : null }),
    file,
    { ...sessionHeaders(), "Content-Type": "application/octet-stream" },
    (sent) => (one.progress = sent / Math.max(file.size, 1)),
  ) as Promise<UploadAnswer>;

/** In a row, of a part; each has a new address. */
const TRIES = 5;

/** Sends a file to the server's bucket, in parts: those that a try before this one sent are there. */
async function toBucket(
  file: File,
  part: boolean,
  blob: string,
  one: Sending,
  request: XMLHttpRequest,
  cancelled: () => boolean,
): Promise<UploadAnswer> {
  let way = await send<Way>("POST", address("uploads/direct"), { name: file.name, size_bytes: file.size, blob, part });
  const where = address(`uploads/direct/${way.upload}`);
  for (let tries = 0; way.parts.length > 0;) {
    const before = way.have_bytes;
    try {
      let have = before;
      for (const { url, offset, size_bytes } of way.parts) {
        await transfer(
          request,
          "PUT",
          url,
          file.slice(offset, offset + size_bytes),
          {},
          (sent) => (one.progress = (have + sent) / file.size),
        );
        have += size_bytes;
      }
    } catch (failure) {
      if (cancelled()) break;
      if (++tries > TRIES) throw failure;
      await new Promise((resolve) => setTimeout(resolve, 1000 * tries));
    }
    way = (await get<Way>(where))?.body ?? way;
    if (way.have_bytes > before) tries = 0;
  }
  if (cancelled()) {
    await ask(where, { method: "DELETE" });
    throw new ApiError(0, "the upload broke off");
  }
  return await send<UploadAnswer>("POST", where);
}

/** What is read into memory to know a file by it. A larger one is sent. */
const MOST_KNOWN = 1 << 30;

/** Its sha256; "" for a file that is too large, and over plain http from another machine, where no browser tells. */
async function sha256(file: File): Promise<string> {
  if (!isSecureContext || file.size > MOST_KNOWN) return "";
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", await file.arrayBuffer()));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The answer to a file that the server has. */
async function known(file: File, part: boolean, blob: string): Promise<UploadAnswer | null> {
  if (!blob) return null;
  return (await send<FilesAnswer>("POST", address("uploads/known"), { blob, name: file.name, part })).files[0] ?? null;
}

/** The server's answer (part: the file has weights of a model); null when it was cancelled or refused, which `sendings` then tells. */
export function upload(file: File, part = false): Promise<UploadAnswer | null> {
  const request = new XMLHttpRequest();
  let cancelled = false;
  const one = reactive<Sending>({
    name: file.name,
    size_bytes: file.size,
    progress: 0,
    error: null,
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
      const session = await readSession();
      if (session?.trusted !== true && !(await askToken())) throw new ApiError(401, t("session.lacking"));
      const blob = await sha256(file);
      const there = await known(file, part, blob);
      if (cancelled) return null;
      const direct = file.size > 0 && session?.direct === true;
      const answer =
        there ??
        (await (direct
          ? toBucket(file, part, blob, one, request, () => cancelled)
          : toServer(file, part, one, request)));
      dismiss(one);
      return answer;
    } catch (failure) {
      if (!cancelled) one.error = asError(failure);
      return null;
    }
  }

  const mine = last.then(run);
  last = mine;
  return mine;
}

/** The path under which the model names a file that somebody chose: alone, or in a folder. */
export function partOf(model: UploadAnswer | null, file: File): string | null {
  const chosen = file.webkitRelativePath || file.name;
  return (
    (model?.model?.external ?? [])
      .map((one) => one.path)
      .find((path) => chosen === path || chosen.endsWith(`/${path}`) || path.endsWith(`/${chosen}`)) ?? null
  );
}

export interface SentModel {
  model: UploadAnswer;
  /** sha256 of files with its weights, by the paths under which it names them. */
  parts: Record<string, string>;
}

/** Sends a model with those of the other files that it names; null when it is none, or was cancelled or refused. */
export async function sendModel(files: readonly File[]): Promise<SentModel | null> {
  const first = files.find((file) => /\.onnx$/i.test(file.name)) ?? files[0];
  const model = first ? await upload(first) : null;
  if (model?.kind !== "model") return null;
  const parts = Object.fromEntries((model.others ?? []).map((part) => [part.name, part.blob]));
  for (const file of files) {
    const path = file === first ? null : partOf(model, file);
    const sent = path === null ? null : await upload(file, true);
    if (sent && path !== null) parts[path] = sent.blob;
  }
  return { model, parts };
}
