// The job that is being put together: what is typed, as it is typed. It outlives the page and a reload.
import { reactive, watch } from "vue";
import type { UploadAnswer } from "../../api/model";

export interface DraftInput {
  name: string;
  dtype: string;
  /** As typed: a size, a name, or nothing yet. */
  dims: string[];
  /** Meant to have no dimension, where the file does not say any. */
  scalar?: boolean;
  fill: "random" | "zeros" | "file";
  blob: string;
}

export interface DraftSpec {
  /** Stays the row's own while rows come and go. */
  row: number;
  /** Empty: made from the rest. */
  id: string;
  backend: string;
  version: string;
  /** "", "agent:ID" or "platform:NAME". */
  where: string;
  device: string;
  precision: "" | "f32" | "f16" | "bf16";
  threads: string;
  options: Record<string, string>;
}

export interface DraftMeasure {
  warmup_s: string;
  min_s: string;
  max_s: string;
  min_n: string;
  profile_runs: string;
  profile_at: string;
  timeout_s: string;
  retries: string;
}

export interface Draft {
  key: string;
  model: UploadAnswer | null;
  arrays: UploadAnswer[];
  name: string;
  inputs: DraftInput[];
  /** Sizes of the named dimensions that are not swept. */
  sizes: Record<string, string>;
  sweep: { dim: string; values: string };
  specs: DraftSpec[];
  measure: DraftMeasure;
  /** What was submitted last, and the job that it became. */
  sent: { job: string; text: string } | null;
}

export const USUAL: DraftMeasure = { warmup_s: "0.2", min_s: "3", max_s: "60", min_n: "662", profile_runs: "20", profile_at: "", timeout_s: "900", retries: "2" };

const STORED = "visualprof.draft/1";

/** Chosen anew for each job: the same key again is the same job, so a repeated click submits nothing twice. */
export function new_key(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function empty(): Draft {
  return { key: new_key(), model: null, arrays: [], name: "", inputs: [], sizes: {}, sweep: { dim: "", values: "1" }, specs: [], measure: { ...USUAL }, sent: null };
}

function restored(): Draft {
  try {
    const kept = JSON.parse(sessionStorage.getItem(STORED) ?? "null") as Partial<Draft> | null;
    return { ...empty(), ...kept };
  } catch {
    // Forbidden storage, or a draft of a version that nobody can read any more.
    return empty();
  }
}

export const draft = reactive<Draft>(restored());

watch(draft, () => {
  try {
    sessionStorage.setItem(STORED, JSON.stringify(draft));
  } catch {
    return;
  }
});

export function clear_draft(): void {
  Object.assign(draft, empty());
}

/** Starts over with another model; what was typed about measuring stays. */
export function replace_draft(next: Partial<Draft>): void {
  Object.assign(draft, { ...empty(), measure: draft.measure, ...next });
}

let last_row = Math.max(0, ...draft.specs.map((spec) => spec.row));

export function new_spec(given: Partial<DraftSpec> = {}): DraftSpec {
  last_row += 1;
  return { id: "", backend: "", version: "", where: "", device: "cpu", precision: "", threads: "", options: {}, ...given, row: last_row };
}
