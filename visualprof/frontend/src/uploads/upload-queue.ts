// Files on their way to the server, one after the other: fetch cannot tell how far an upload is.
import { reactive } from "vue";
import {
  address,
  ApiError,
  asError,
  fetchApi,
  requestToken,
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

export function dismiss(sending: Sending): void {
  const index = sendings.indexOf(sending);
  if (index >= 0) sendings.splice(index, 1);
}

function uploadError(request: XMLHttpRequest): ApiError {
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
  onProgress: (bytes: number) => void,
): Promise<unknown> {
  return new Promise((resolve, reject) => {
    request.open(method, url);
    request.responseType = "json";
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => onProgress(event.loaded);
    request.onload = () => (request.status < 300 ? resolve(request.response) : reject(uploadError(request)));
    request.onerror = () => reject(new ApiError(0, "the upload broke off"));
    request.onabort = () => reject(new ApiError(0, "the upload broke off"));
    request.send(body);
  });
}

const uploadToServer = (file: File, part: boolean, sending: Sending, request: XMLHttpRequest) =>
  transfer(
    request,
    "POST",
    address("uploads", { name: file.name, part: part ? "true" : null }),
    file,
    { ...sessionHeaders(), "Content-Type": "application/octet-stream" },
    (sentBytes) => (sending.progress = sentBytes / Math.max(file.size, 1)),
  ) as Promise<UploadAnswer>;

/** In a row, of a part; each has a new address. */
const MAX_TRIES = 5;

/** Sends a file to the server's bucket, in parts: those that a try before this one sent are there. */
async function uploadToBucket(
  file: File,
  part: boolean,
  blob: string,
  sending: Sending,
  request: XMLHttpRequest,
  cancelled: () => boolean,
): Promise<UploadAnswer> {
  let status = await send<Way>("POST", address("uploads/direct"), {
    name: file.name,
    size_bytes: file.size,
    blob,
    part,
  });
  const where = address(`uploads/direct/${status.upload}`);
  for (let tries = 0; status.parts.length > 0;) {
    const before = status.have_bytes;
    try {
      let have = before;
      for (const { url, offset, size_bytes } of status.parts) {
        await transfer(
          request,
          "PUT",
          url,
          file.slice(offset, offset + size_bytes),
          {},
          (sentBytes) => (sending.progress = (have + sentBytes) / file.size),
        );
        have += size_bytes;
      }
    } catch (failure) {
      if (cancelled()) break;
      if (++tries > MAX_TRIES) throw failure;
      await new Promise((resolve) => setTimeout(resolve, 1000 * tries));
    }
    status = (await get<Way>(where))?.body ?? status;
    if (status.have_bytes > before) tries = 0;
  }
  if (cancelled()) {
    await fetchApi(where, { method: "DELETE" });
    throw new ApiError(0, "the upload broke off");
  }
  return await send<UploadAnswer>("POST", where);
}

/** What is read into memory to know a file by it. A larger one is sent. */
const MAX_REMEMBERED = 1 << 30;

/** Its sha256; "" for a file that is too large, and over plain http from another machine, where no browser tells. */
async function sha256(file: File): Promise<string> {
  if (!isSecureContext || file.size > MAX_REMEMBERED) return "";
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", await file.arrayBuffer()));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The answer to a file that the server has. */
async function findStored(file: File, part: boolean, blob: string): Promise<UploadAnswer | null> {
  if (!blob) return null;
  return (await send<FilesAnswer>("POST", address("uploads/known"), { blob, name: file.name, part })).files[0] ?? null;
}

/** The server's answer (part: the file has weights of a model); null when it was cancelled or refused, which `sendings` then tells. */
export function upload(file: File, part = false): Promise<UploadAnswer | null> {
  const request = new XMLHttpRequest();
  let cancelled = false;
  const sending = reactive<Sending>({
    name: file.name,
    size_bytes: file.size,
    progress: 0,
    error: null,
    cancel: () => {
      cancelled = true;
      request.abort();
      dismiss(sending);
    },
  });
  sendings.push(sending);

  async function run(): Promise<UploadAnswer | null> {
    try {
      // A file is not sent to be refused.
      const session = await readSession();
      if (session?.trusted !== true && !(await requestToken())) throw new ApiError(401, t("session.lacking"));
      const blob = await sha256(file);
      const stored = await findStored(file, part, blob);
      if (cancelled) return null;
      const direct = file.size > 0 && session?.direct === true;
      const answer =
        stored ??
        (await (direct
          ? uploadToBucket(file, part, blob, sending, request, () => cancelled)
          : uploadToServer(file, part, sending, request)));
      dismiss(sending);
      return answer;
    } catch (failure) {
      if (!cancelled) sending.error = asError(failure);
      return null;
    }
  }

  const ownTurn = last.then(run);
  last = ownTurn;
  return ownTurn;
}

/** The path under which the model names a file that somebody chose: alone, or in a folder. */
export function uploadPart(model: UploadAnswer | null, file: File): string | null {
  const chosen = file.webkitRelativePath || file.name;
  return (
    (model?.model?.external ?? [])
      .map((entry) => entry.path)
      .find((path) => chosen === path || chosen.endsWith(`/${path}`) || path.endsWith(`/${chosen}`)) ?? null
  );
}

export interface UploadedModelFile {
  model: UploadAnswer;
  /** sha256 of files with its weights, by the paths under which it names them. */
  parts: Record<string, string>;
}

/** Sends a model with those of the other files that it names; null when it is none, or was cancelled or refused. */
export async function sendModel(files: readonly File[]): Promise<UploadedModelFile | null> {
  const first = files.find((file) => /\.onnx$/i.test(file.name)) ?? files[0];
  const model = first ? await upload(first) : null;
  if (model?.kind !== "model") return null;
  const parts = Object.fromEntries((model.others ?? []).map((part) => [part.name, part.blob]));
  for (const file of files) {
    const path = file === first ? null : uploadPart(model, file);
    const uploaded = path === null ? null : await upload(file, true);
    if (uploaded && path !== null) parts[path] = uploaded.blob;
  }
  return { model, parts };
}
