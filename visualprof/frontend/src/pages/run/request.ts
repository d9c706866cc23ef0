// A draft as the request that the server takes, and back.
import type { AgentRow, FieldError, JobAnswer, JobInput, JobRequest, JobSpec, UploadAnswer } from "../../api/model";
import { new_spec, replace_draft, USUAL, type Draft, type DraftSpec } from "./draft";
import { dim_names, is_name } from "./inputs";
import { spec_ids } from "./specs";
import { parse_sweep, sweep_text } from "./sweep";

/** What is wrong with what was typed, before anybody is asked; `say` is the locale's text. */
export function typing_errors(draft: Draft, say: (key: string) => string): FieldError[] {
  const errors: FieldError[] = [];
  const note = (field: string, key: string) => errors.push({ field, error: say(`run.wrong.${key}`), hint: null });
  const names = dim_names(draft.inputs);
  draft.inputs.forEach((input, i) => input.dims.forEach((dim, d) => dim === "" && note(`inputs[${i}].dims[${d}]`, "dim")));
  const asked = draft.model?.model?.inputs ?? [];
  draft.inputs.forEach((input, i) => asked[i]?.dims === null && input.dims.length === 0 && !input.scalar && note(`inputs[${i}].dims`, "dims"));
  for (const name of names) if (name !== draft.sweep.dim && !/^[1-9]\d*$/.test(draft.sizes[name] ?? "")) note(`dims.${name}`, "size");
  if (draft.sweep.dim !== "" && parse_sweep(draft.sweep.values) === null) note("sweep.values", "sweep");
  if (draft.specs.length === 0) note("specs", "no_spec");
  draft.specs.forEach((spec, i) => /^\d*$/.test(spec.threads) || note(`specs[${i}].threads`, "whole"));
  for (const [name, path] of Object.entries(MEASURES)) if (number_of(draft.measure[name as keyof typeof MEASURES]) === null) note(path, "number");
  return errors;
}

/** Where each typed number of measuring stands in a request. */
export const MEASURES = {
  warmup_s: "measure.warmup_s",
  min_s: "measure.min_s",
  max_s: "measure.max_s",
  min_n: "measure.min_n",
  profile_runs: "profile.runs",
  profile_at: "profile.at",
  timeout_s: "timeout_s",
  retries: "retries",
} as const;

function number_of(text: string): number | null {
  if (text === "") return 0;
  return /^\d+(\.\d+)?$/.test(text) ? Number(text) : null;
}

function spec_of(spec: DraftSpec, id: string): JobSpec {
  const [kind, name] = [spec.where.replace(/:.*$/, ""), spec.where.replace(/^[^:]*:/, "")];
  return {
    id, backend: spec.backend, version: spec.version,
    agent: kind === "agent" ? name : "", platform: kind === "platform" ? name : "",
    device: spec.device, precision: spec.precision, threads: Number(spec.threads) || 0,
    options: Object.fromEntries(Object.entries(spec.options).filter(([, value]) => value !== "")),
  };
}

function inputs_of(draft: Draft): JobInput[] {
  return draft.inputs.map((input) => ({
    name: input.name, dtype: input.dtype, fill: input.fill, blob: input.fill === "file" ? input.blob : "",
    dims: input.dims.map((dim) => (is_name(dim) || dim === "" ? dim : Number(dim))),
  }));
}

export function request_of(draft: Draft, agents: readonly AgentRow[]): JobRequest {
  const ids = spec_ids(draft.specs, agents);
  const number = (name: keyof typeof MEASURES) => number_of(draft.measure[name]) ?? 0;
  const unswept = dim_names(draft.inputs).filter((name) => name !== draft.sweep.dim);
  return {
    key: draft.key,
    name: draft.name.trim(),
    model: { blob: draft.model?.blob ?? "", name: draft.model?.name ?? "" },
    inputs: inputs_of(draft),
    dims: Object.fromEntries(unswept.map((name) => [name, Number(draft.sizes[name]) || 0])),
    sweep: draft.sweep.dim === "" ? { dim: "", values: [1] } : { dim: draft.sweep.dim, values: parse_sweep(draft.sweep.values) ?? [] },
    specs: draft.specs.map((spec, place) => spec_of(spec, ids[place] ?? "")),
    measure: { warmup_s: number("warmup_s"), min_s: number("min_s"), max_s: number("max_s"), min_n: number("min_n") },
    profile: { runs: number("profile_runs"), at: number("profile_at") },
    monitor_interval_s: 0.1,
    timeout_s: number("timeout_s"),
    retries: number("retries"),
  };
}

export function spec_row(spec: JobSpec, agents: readonly AgentRow[]): DraftSpec {
  const where = spec.agent ? `agent:${spec.agent}` : spec.platform ? `platform:${spec.platform}` : "";
  const row = new_spec({ backend: spec.backend, version: spec.version, where, device: spec.device, precision: spec.precision, threads: spec.threads ? String(spec.threads) : "", options: { ...spec.options } });
  // A name that was made from the rest goes on following it.
  return { ...row, id: spec_ids([row], agents)[0] === spec.id ? "" : spec.id };
}

/** The file of a job that is gone: what its head said is not known any more. */
function file_of(answer: JobAnswer): UploadAnswer {
  const { request, job } = answer;
  const model = { format: "", inputs: [], outputs: [], dims: {}, backends: [], warnings: [] };
  return { blob: request.model.blob, name: request.model.name, size_bytes: 0, kind: "model", model, array: null, graph: job.graph };
}

function arrays_of(answer: JobAnswer): UploadAnswer[] {
  const inputs = (answer.request.inputs ?? []).filter((input) => input.fill === "file");
  return inputs.map((input, place) => ({
    blob: input.blob ?? "", name: answer.job.data[place] ?? `${input.name}.npy`, size_bytes: 0, kind: "array", model: null, graph: null, array: null,
  }));
}

/** Puts an old job into the form. files: those of the job that the server still has. */
export function use_as_template(answer: JobAnswer, agents: readonly AgentRow[], files: readonly UploadAnswer[]): void {
  const { request } = answer;
  const measure = { ...USUAL };
  const texts: [keyof typeof USUAL, number | undefined][] = [
    ["warmup_s", request.measure?.warmup_s], ["min_s", request.measure?.min_s], ["max_s", request.measure?.max_s], ["min_n", request.measure?.min_n],
    ["profile_runs", request.profile?.runs], ["profile_at", request.profile?.at || undefined], ["timeout_s", request.timeout_s], ["retries", request.retries],
  ];
  for (const [name, value] of texts) if (value !== undefined) measure[name] = String(value);
  const file = (blob: string) => files.find((one) => one.blob === blob);
  replace_draft({
    model: file(request.model.blob) ?? file_of(answer),
    arrays: arrays_of(answer).map((array) => file(array.blob) ?? array),
    name: request.name,
    inputs: (request.inputs ?? []).map((input) => ({ name: input.name, dtype: input.dtype, dims: input.dims.map(String), scalar: input.dims.length === 0, fill: input.fill ?? "random", blob: input.blob ?? "" })),
    sizes: Object.fromEntries(Object.entries(request.dims ?? {}).map(([name, size]) => [name, String(size)])),
    sweep: { dim: request.sweep?.dim ?? "", values: sweep_text(request.sweep?.values ?? [1]) },
    specs: request.specs.map((spec) => spec_row(spec, agents)),
    measure,
  });
}
