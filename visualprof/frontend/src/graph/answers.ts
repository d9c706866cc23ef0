// What the server's graph routes answer (docs/http-api.md, "graph").
import type { Cell } from "../api/model";

export interface ModelEntry {
  id: string;
  name: string;
  file: string;
  format: string;
  run: string | null;
  size_bytes: number;
  modified_ns: number;
  uploaded: boolean;
}

export interface ModelsAnswer {
  models: ModelEntry[];
  skipped: { file: string; error: string; hint: string | null }[];
}

export interface Tensor {
  name: string;
  dtype: string | null;
  shape: Cell;
  constant?: boolean;
  bytes?: number | null;
}

export interface GraphAnswer {
  model: {
    id: string;
    name: string;
    format: string;
    producer: string | null;
    inputs: Tensor[];
    outputs: Tensor[];
    parameters: number | null;
    parameter_bytes: number | null;
    properties: Record<string, Cell>;
    warnings: string[];
  };
  groups: { name: string[]; parent: number[]; kind: string[]; twin: number[]; nodes: number[]; parameters: (number | null)[]; parameter_bytes: (number | null)[] };
  nodes: { name: string[]; full_name?: string[]; attributes?: string[]; type: string[]; group: number[]; constants: number[]; parameters: (number | null)[]; parameter_bytes: (number | null)[] };
  edges: { src: number[]; dst: number[]; value: number[] };
  values: { name: string[]; dtype: (string | null)[]; shape: (string | null)[] };
}

export interface NodeAnswer {
  name: string;
  type: string;
  scope: string | null;
  attributes: Record<string, string>;
  inputs: Tensor[];
  outputs: Tensor[];
  documentation: string | null;
}

export const MEASURES = ["time_ns", "calls", "flops", "memory_bytes"] as const;
export type Measure = (typeof MEASURES)[number];

export interface ProfileAnswer {
  total_ns: number;
  matched_ns: number;
  matched_ratio: number;
  matched_nodes: number;
  calls_total: number | null;
  rule: string;
  columns: Record<Measure | "event", (number | null)[]>;
}

export type ChangeStatus = "same" | "changed" | "removed" | "added";

export interface CompareAnswer {
  pairs: [number, number][];
  status: ChangeStatus[];
  other_status: ChangeStatus[];
  changes: { node: number; other: number; what: string[] }[];
}
