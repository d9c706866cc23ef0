// Answers of the server's graph routes (docs/http-api.md, "graph"). The columns are declared here if the schema says
// "any".
import type { Schemas } from "./model";

export type ModelEntry = Schemas["ModelEntry"];
export type ModelsAnswer = Schemas["ModelsAnswer"];
export type MatchesAnswer = Schemas["MatchesAnswer"];
/** A value on an edge; only these three fields are known. */
export type Tensor = Pick<Schemas["GraphTensor"], "name" | "dtype" | "shape"> & Partial<Schemas["GraphTensor"]>;
export type NodeAnswer = Schemas["NodeDetails"];

export interface GraphAnswer {
  model: Omit<Schemas["GraphModel"], "operators">;
  groups: {
    name: string[];
    parent: number[];
    kind: string[];
    twin: number[];
    node: (number | null)[];
    operators: number[];
    parameters: (number | null)[];
    parameter_bytes: (number | null)[];
    unknown_constants: (number | null)[];
  };
  nodes: {
    name: string[];
    full_name?: string[];
    attributes?: string[];
    type: string[];
    group: number[];
    constants: number[];
    parameters: (number | null)[];
    parameter_bytes: (number | null)[];
    unknown_constants: (number | null)[];
  };
  edges: { src: number[]; dst: number[]; value: number[] };
  values: { name: string[]; dtype: string[]; shape: string[] };
}

export const MEASURES = ["time_ns", "calls", "flops", "memory_bytes"] as const;
export type Measure = (typeof MEASURES)[number];

export type ProfileAnswer = Schemas["GraphProfile"];
export type CompareAnswer = Schemas["GraphComparison"];
export type ChangeStatus = CompareAnswer["status"][number] | CompareAnswer["other_status"][number];
