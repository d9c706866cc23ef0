// Rows of specs: what the machines offer, a first choice, and readable names.
import type { AgentRow, Runtime } from "../../api/model";
import { new_spec, type DraftSpec } from "./draft";

const MOST_PREFILLED = 4;

function runtimes_of(agent: AgentRow): Runtime[] {
  return agent.capabilities.runtimes ?? [];
}

/** Newest first, part by part: 1.10 comes before 1.9. */
export function newer_first(a: string, b: string): number {
  return b.localeCompare(a, "en", { numeric: true });
}

function distinct(values: readonly string[]): string[] {
  return [...new Set(values)];
}

/** The agents that `where` means; those that are online count, others only if they were chosen by name. */
export function agents_at(where: string, agents: readonly AgentRow[]): AgentRow[] {
  const [kind, name] = [where.replace(/:.*$/, ""), where.replace(/^[^:]*:/, "")];
  if (kind === "agent") return agents.filter((agent) => agent.id === name);
  return agents.filter((agent) => agent.online && (kind !== "platform" || agent.capabilities.platform === name));
}

/** The runtimes that could serve a row as it stands. */
export function matching(spec: Pick<DraftSpec, "backend" | "where">, agents: readonly AgentRow[]): Runtime[] {
  return agents_at(spec.where, agents).flatMap(runtimes_of).filter((runtime) => runtime.backend === spec.backend);
}

export function versions_for(spec: DraftSpec, agents: readonly AgentRow[]): string[] {
  return distinct(matching(spec, agents).map((runtime) => runtime.version)).sort(newer_first);
}

export function devices_for(spec: DraftSpec, agents: readonly AgentRow[]): string[] {
  const fitting = matching(spec, agents).filter((runtime) => spec.version === "" || runtime.version === spec.version);
  return distinct(["cpu", ...fitting.flatMap((runtime) => runtime.devices ?? [])]);
}

export function platforms_of(agents: readonly AgentRow[]): string[] {
  return distinct(agents.map((agent) => agent.capabilities.platform)).sort();
}

function best_device(spec: DraftSpec, agents: readonly AgentRow[]): string {
  return devices_for(spec, agents).find((device) => device !== "cpu") ?? "cpu";
}

/** One row for each runtime of each online machine that loads the model, the best device of each, a few at most; where there is none yet, one for each that would load it. */
export function prefilled(backends: readonly string[], agents: readonly AgentRow[]): DraftSpec[] {
  const online = agents.filter((agent) => agent.online);
  const rows = backends.flatMap((backend) =>
    online
      .filter((agent) => runtimes_of(agent).some((runtime) => runtime.backend === backend))
      .map((agent) => new_spec({ backend, where: online.length > 1 ? `agent:${agent.id}` : "" })),
  );
  for (const row of rows) row.device = best_device(row, agents);
  return (rows.length > 0 ? rows : backends.map((backend) => new_spec({ backend }))).slice(0, MOST_PREFILLED);
}

/** What the server allows as a folder's name. */
function slug(text: string): string {
  return text.replace(/[^A-Za-z0-9_.-]+/g, "-").replace(/^[^A-Za-z0-9]+|[-_.]+$/g, "");
}

function made_id(spec: DraftSpec, agents: readonly AgentRow[]): string {
  const [kind, place] = [spec.where.replace(/:.*$/, ""), spec.where.replace(/^[^:]*:/, "")];
  const where = kind === "agent" ? (agents.find((agent) => agent.id === place)?.name ?? "") : place;
  const device = spec.device === "cpu" ? "" : spec.device.replace(":", "");
  const threads = spec.threads === "" || spec.threads === "0" ? "" : `${spec.threads}t`;
  const parts = [spec.backend, spec.version, where, device, spec.precision, threads, ...Object.values(spec.options)];
  return parts.map(slug).filter(Boolean).join("-").slice(0, 44) || "spec";
}

/** The ids of all rows: those that were typed, and for the rest readable ones, each once. */
export function spec_ids(specs: readonly DraftSpec[], agents: readonly AgentRow[]): string[] {
  const taken = new Set(specs.map((spec) => spec.id).filter(Boolean));
  return specs.map((spec) => {
    if (spec.id !== "") return spec.id;
    const base = made_id(spec, agents);
    let id = base;
    for (let n = 2; taken.has(id); n += 1) id = `${base}-${n}`;
    taken.add(id);
    return id;
  });
}
