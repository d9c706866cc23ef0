// The draft of a job: the inputs as typed. The server fills empty ones. It survives leaving and reloading the page.
import { reactive, shallowRef, watch } from "vue";
import type { BackendsAnswer, Draft, DraftInput, DraftSpec, JobRow, UploadAnswer } from "../../api/model";

/**
 * One way to run the model. `where`: "", "agent:ID" or "platform:NAME". `row`: a key while rows are added and removed.
 */
export interface SpecRow extends Pick<DraftSpec, "id" | "version" | "device" | "options"> {
  row: number;
  backend: string;
  where: string;
  precision: string;
  threads: string;
}

export interface PageDraft extends Pick<
  Draft,
  "key" | "name" | "dims" | "sweep" | "sizes" | "measure" | "spread" | "priority"
> {
  model: UploadAnswer | null;
  /** Files with its weights, by their paths in the model. */
  parts: Record<string, string>;
  arrays: UploadAnswer[];
  inputs: DraftInput[];
  specs: SpecRow[] | null;
  /** Candidates to measure for every spec; null for none. */
  advise: NonNullable<Draft["advise"]> | null;
  /** The search for the best settings of every spec; null for none. */
  search: Required<NonNullable<Draft["search"]>> | null;
  /** Rows of the user's own data to judge candidates and settings: arrays by input name. */
  data: { name: string; rows: number; blobs: Record<string, string> } | null;
  /** The draft that was submitted last, and its job. */
  sent: { job: string; text: string } | null;
}

/** Default sizes of the swept dimension. */
export const DEFAULT_SIZES = "1:16";

/** What the server knows about runtimes, types and measuring. */
export const facts = shallowRef<BackendsAnswer>({ backends: [], dtypes: [], measures: [] });

const STORAGE_KEY = "visualprof.draft/2";

/**
 * A new key per job. The server treats requests with the same key as one job, so that a double click submits it once.
 */
export function newKey(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function empty(): PageDraft {
  return {
    key: newKey(),
    model: null,
    parts: {},
    arrays: [],
    name: "",
    inputs: [],
    dims: {},
    sweep: null,
    sizes: null,
    specs: null,
    measure: {},
    spread: false,
    priority: "normal",
    advise: null,
    search: null,
    data: null,
    sent: null,
  };
}

function restoreDraft(): PageDraft {
  try {
    const saved = JSON.parse(sessionStorage.getItem(STORAGE_KEY) ?? "null") as Partial<PageDraft> | null;
    return { ...empty(), ...saved };
  } catch {
    // Storage is forbidden, or the stored draft has an old version.
    return empty();
  }
}

export const draft = reactive<PageDraft>(restoreDraft());

watch(draft, () => {
  try {
    sessionStorage.setItem(STORAGE_KEY, JSON.stringify(draft));
  } catch {
    return;
  }
});

export function clearDraft(): void {
  Object.assign(draft, empty());
}

let lastRow = Math.max(0, ...(draft.specs ?? []).map((spec) => spec.row));

export function newSpec(values: Partial<SpecRow> = {}): SpecRow {
  lastRow += 1;
  return {
    id: "",
    backend: "",
    version: "",
    where: "",
    device: "cpu",
    precision: "",
    threads: "",
    options: {},
    ...values,
    row: lastRow,
  };
}

/**
 * Start over with another model. Measuring options, and other inputs that still fit, are kept. `swept`: the current
 * dimension.
 */
export function setModel(file: UploadAnswer, swept: string): void {
  const loads = file.model?.backends ?? [];
  const specs = (draft.specs ?? []).filter((spec) => loads.includes(spec.backend));
  Object.assign(draft, {
    ...empty(),
    measure: draft.measure,
    arrays: draft.arrays,
    model: file,
    parts: Object.fromEntries((file.others ?? []).map((part) => [part.name, part.blob])),
    inputs: (file.model?.inputs ?? []).map((input): DraftInput => ({
      name: input.name,
      dtype: "",
      dims: null,
      fill: "",
      blob: "",
    })),
    sizes: swept in (file.model?.dims ?? {}) ? draft.sizes : null,
    specs: specs.length > 0 ? specs : null,
  });
}

/** Replace the arrays next to the model. Inputs that used a removed array take a new one of the same name. */
export function setArrays(arrays: UploadAnswer[]): void {
  draft.arrays = arrays;
  for (const input of draft.inputs) {
    if (input.fill === "file" && !arrays.some((array) => array.blob === input.blob))
      Object.assign(input, { fill: "", blob: "" });
  }
}

/** Return the request for the server. `dims`: the named dimensions whose sizes are needed. */
export function toRequest(dims: readonly string[]): Draft {
  return {
    key: draft.key,
    name: draft.name,
    model: draft.model?.blob ?? "",
    model_name: draft.model?.name ?? "",
    parts: draft.parts,
    arrays: draft.arrays.map((array) => array.blob),
    inputs: draft.inputs,
    sweep: draft.sweep,
    sizes: draft.sweep === "" ? null : draft.sizes,
    usual_sizes: DEFAULT_SIZES,
    dims: Object.fromEntries(Object.entries(draft.dims).filter(([name]) => dims.includes(name))),
    specs: draft.specs?.map(toSpec) ?? null,
    measure: draft.measure,
    spread: draft.spread,
    priority: draft.priority,
    advise: { ...(draft.advise ?? {}), data: draft.advise || draft.search ? (draft.data?.blobs ?? {}) : {} },
    search: draft.search ?? {},
  };
}

function toSpec(row: SpecRow): DraftSpec {
  const [kind = "", target = ""] = row.where.split(/:(.*)/);
  const { id, version, device, options } = row;
  return {
    id,
    version,
    device,
    options,
    agent: kind === "agent" ? target : "",
    platform: kind === "platform" ? target : "",
    backends: [row.backend],
    precisions: [row.precision],
    threads: [row.threads],
  };
}

export function toRow(spec: DraftSpec): SpecRow {
  const where = spec.agent ? `agent:${spec.agent}` : spec.platform ? `platform:${spec.platform}` : "";
  const { id, version, device } = spec;
  return newSpec({
    id,
    version,
    device,
    where,
    backend: spec.backends[0],
    precision: spec.precisions[0],
    threads: spec.threads[0],
    options: { ...spec.options },
  });
}

/** Fill the form from an old job or a registered model. `files`: those of its files that the server still has. */
export function useAsTemplate(old: Draft, job: Pick<JobRow, "graph" | "data">, files: readonly UploadAnswer[]): void {
  const file = (blob: string) => files.find((candidate) => candidate.blob === blob);
  const unknown = {
    format: "",
    inputs: [],
    outputs: [],
    dims: {},
    backends: [],
    warnings: [],
    fixed_inputs: false,
    external: [],
  };
  const gone = { size_bytes: 0, array: null, model: null, graph: null, others: [] };
  const rows = Object.values(old.advise?.data ?? {}).map(file);
  const data =
    rows.length > 0 && rows.every((row) => row !== undefined)
      ? { name: ".npz", rows: rows[0]?.array?.shape[0] ?? 1, blobs: old.advise?.data ?? {} }
      : null;
  Object.assign(draft, empty(), {
    data,
    parts: old.parts,
    spread: old.spread,
    priority: old.priority,
    advise: old.advise?.objective ? { ...old.advise, data: {} } : null,
    search: old.search?.objective ? old.search : null,
    name: old.name,
    inputs: old.inputs ?? [],
    dims: old.dims,
    sweep: old.sweep,
    sizes: old.sizes,
    measure: old.measure,
    specs: old.specs?.map(toRow) ?? null,
    model: file(old.model) ?? {
      ...gone,
      kind: "model",
      blob: old.model,
      name: old.model_name,
      model: unknown,
      graph: job.graph,
    },
    arrays: old.arrays.map(
      (blob, index) => file(blob) ?? { ...gone, kind: "array", blob, name: job.data[index] ?? `${index + 1}.npy` },
    ),
  });
}
