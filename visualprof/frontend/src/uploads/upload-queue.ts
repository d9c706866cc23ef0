// Uploads files one after the other, with XMLHttpRequest because fetch reports no progress.
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
  type UploadedRecording,
  type Way,
} from "../api";
import { t } from "../locales";

interface Sending {
  name: string;
  size_bytes: number;
  /** 0..1; 1 while the server processes the file. */
  progress: number;
  error: ApiError | null;
  cancel: () => void;
}

interface Transfer {
  sending: Sending;
  request: XMLHttpRequest;
  isCancelled: () => boolean;
}

/** Current uploads, and failed ones until they are dismissed. */
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

/** Send a body and report its progress. Requests to another host carry no session headers. */
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

const sendToServer = (file: File, url: string, { sending, request }: Transfer) =>
  transfer(
    request,
    "POST",
    url,
    file,
    { ...sessionHeaders(), "Content-Type": "application/octet-stream" },
    (sentBytes) => (sending.progress = sentBytes / Math.max(file.size, 1)),
  );

/** Consecutive failures of a part; each retry has a new address. */
const MAX_TRIES = 5;

/** Upload a file to the server's bucket in parts. Parts from an earlier attempt are skipped. */
async function uploadToBucket(
  file: File,
  part: boolean,
  blob: string,
  { sending, request, isCancelled }: Transfer,
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
      if (isCancelled()) break;
      if (++tries > MAX_TRIES) throw failure;
      await new Promise((resolve) => setTimeout(resolve, 1000 * tries));
    }
    status = (await get<Way>(where))?.body ?? status;
    if (status.have_bytes > before) tries = 0;
  }
  if (isCancelled()) {
    await fetchApi(where, { method: "DELETE" });
    throw new ApiError(0, "the upload broke off");
  }
  return await send<UploadAnswer>("POST", where);
}

/** Maximum size to hash in memory. Larger files are uploaded without a check. */
const MAX_REMEMBERED = 1 << 30;

/** Return the sha256, or "" if the file is too large or the browser has no crypto (plain http from another machine). */
async function sha256(file: File): Promise<string> {
  if (!isSecureContext || file.size > MAX_REMEMBERED) return "";
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", await file.arrayBuffer()));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Return the server's answer if it already has the file. */
async function findStored(file: File, part: boolean, blob: string): Promise<UploadAnswer | null> {
  if (!blob) return null;
  return (await send<FilesAnswer>("POST", address("uploads/known"), { blob, name: file.name, part })).files[0] ?? null;
}

/**
 * Upload a file after those before it, and return the server's answer; null if canceled or rejected, which `sendings`
 * then shows. A file that would be rejected is not sent.
 */
function enqueue<T>(file: File, run: (transfer: Transfer, isDirect: boolean) => Promise<T>): Promise<T | null> {
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

  async function start(): Promise<T | null> {
    if (cancelled) return null;
    try {
      const session = await readSession();
      if (session?.trusted !== true && !(await requestToken())) throw new ApiError(401, t("session.lacking"));
      const answer = await run({ sending, request, isCancelled: () => cancelled }, session?.direct === true);
      dismiss(sending);
      return cancelled ? null : answer;
    } catch (failure) {
      if (!cancelled) sending.error = asError(failure);
      return null;
    }
  }

  const ownTurn = last.then(start);
  last = ownTurn;
  return ownTurn;
}

/** Upload a file of a job (`part`: the file has weights of a model). */
export function upload(file: File, part = false): Promise<UploadAnswer | null> {
  return enqueue(file, async (transfer, isDirect) => {
    const blob = await sha256(file);
    const stored = await findStored(file, part, blob);
    if (stored || transfer.isCancelled()) return stored as UploadAnswer;
    return file.size > 0 && isDirect
      ? await uploadToBucket(file, part, blob, transfer)
      : ((await sendToServer(
          file,
          address("uploads", { name: file.name, part: part ? "true" : null }),
          transfer,
        )) as UploadAnswer);
  });
}

/** Upload a recording into the log directory, as a new run or to the run of an earlier upload. */
export function uploadRecording(file: File, run = ""): Promise<UploadedRecording | null> {
  return enqueue(
    file,
    async (transfer) =>
      (await sendToServer(file, address("runs", { name: file.name, run: run || null }), transfer)) as UploadedRecording,
  );
}

/** Return the path by which the model names a chosen file: its name, or with its folder. */
export function partPath(model: UploadAnswer | null, file: File): string | null {
  const chosen = file.webkitRelativePath || file.name;
  return (
    (model?.model?.external ?? [])
      .map((entry) => entry.path)
      .find((path) => chosen === path || chosen.endsWith(`/${path}`) || path.endsWith(`/${chosen}`)) ?? null
  );
}

export interface UploadedModelFile {
  model: UploadAnswer;
  /** sha256 of the files with its weights, by their paths in the model. */
  parts: Record<string, string>;
}

/** Upload a model with the other files that it names; null if it is not a model, or was canceled or rejected. */
export async function sendModel(files: readonly File[]): Promise<UploadedModelFile | null> {
  const first = files.find((file) => /\.onnx$/i.test(file.name)) ?? files[0];
  const model = first ? await upload(first) : null;
  if (model?.kind !== "model") return null;
  const parts = Object.fromEntries((model.others ?? []).map((part) => [part.name, part.blob]));
  for (const file of files) {
    const path = file === first ? null : partPath(model, file);
    const uploaded = path === null ? null : await upload(file, true);
    if (uploaded && path !== null) parts[path] = uploaded.blob;
  }
  return { model, parts };
}
