// The server's types under short names. Those in types.ts are generated ("npm run types") and never edited;
// where a schema says "anything", this file says what the pages may count on.
import type { components } from "./types";

export type Schemas = components["schemas"];

/** Everything a table cell can hold; lists appear for shapes, dims and stacks. */
export type Cell = string | number | boolean | null | Cell[];
export type Columns = Record<string, Cell[]>;

type WithCells<T> = Omit<T, "columns"> & { columns: Columns };

export type Table = WithCells<Schemas["Table"]>;
export type OperatorAnswer = WithCells<Schemas["OperatorAnswer"]>;
export type KernelAnswer = Omit<WithCells<Schemas["KernelAnswer"]>, "memory_operations"> & { memory_operations: Table | null };

export type MemoryDevice = Schemas["MemoryDevice"];
export type MemoryPeak = Omit<Schemas["MemoryPeak"], "operators" | "modules" | "categories"> & Partial<Record<"operators" | "modules" | "categories", Table | null>>;
export type MemoryAnswer = Omit<Schemas["MemoryAnswer"], "curve" | "operators" | "events" | "peak" | "categories"> & {
  curve: Table;
  operators: Table;
  events: Table;
  peak: MemoryPeak;
  categories?: Table | null;
};
export type RankDevice = Schemas["RankDevice"];
export type Straggler = Schemas["Straggler"];
export type DistributedAnswer = Omit<WithCells<Schemas["DistributedAnswer"]>, "collectives" | "waits"> & { collectives: Table; waits: Table };
export type ProfileAnswer = WithCells<Schemas["ProfileAnswer"]>;

export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

export interface ChartsAnswer {
  charts: Record<string, JsonObject>;
}

export type Span = Schemas["Span"];
export type SpanState = Span["state"];
export type Worker = Schemas["Worker"];
export type Run = Schemas["Run"];
export type SkippedFile = Schemas["SkippedFile"];
export type RunsAnswer = Schemas["RunsAnswer"];
export type Status = Schemas["Status"];
export type ViewsAnswer = Schemas["ViewsAnswer"];
export type ErrorBody = Schemas["ErrorBody"];
export type Device = Schemas["Device"];
export type Finding = Schemas["Finding"];

/** Facts by name, shown as they come: a new one needs no change here. */
export type Environment = Record<string, Cell>;

export type OverviewAnswer = Omit<Schemas["OverviewAnswer"], "steps" | "average_step" | "stages" | "events" | "annotations" | "environment"> & {
  steps: Columns;
  average_step: Record<string, Cell>;
  stages: Table;
  events: Table;
  annotations: Table;
  environment: Environment;
};

export type UploadAnswer = Schemas["UploadAnswer"];
export type FilesAnswer = Schemas["FilesAnswer"];
export type UploadedModel = Schemas["UploadedModel"];
export type DraftInput = Schemas["DraftInput"];
export type DraftSpec = Required<Schemas["DraftSpec"]>;
export type Draft = Required<Omit<Schemas["Draft"], "specs">> & { specs: DraftSpec[] | null };
export type Drafted = Schemas["Drafted"];
export type FieldError = Schemas["FieldError"];
export type JobState = JobRow["state"];
export type JobRow = Schemas["JobRow"];
export type TaskRow = Schemas["TaskRow"];
export type JobsAnswer = Schemas["JobsAnswer"];
export type JobAnswer = Schemas["JobAnswer"];
export type PointRow = Schemas["PointRow"];
export type LogAnswer = Schemas["LogAnswer"];
export type AgentRow = Schemas["AgentRow"];
export type AgentsAnswer = Schemas["AgentsAnswer"];
export type AgentChange = Partial<Schemas["AgentChange"]>;
export type Runtime = Schemas["Runtime"];
export type BackendEntry = Schemas["BackendEntry"];
export type BackendsAnswer = Schemas["BackendsAnswer"];
export type ReportRow = Schemas["ReportRow"];
export type ReportsAnswer = Schemas["ReportsAnswer"];
export type Verdict = Record<string, Json>;

type Charts = Record<string, JsonObject>;
export type EvaluationAnswer = Omit<Schemas["EvaluationAnswer"], "table" | "best" | "verdicts" | "charts"> & { table: Columns; best: Columns; verdicts: Verdict[]; charts: Charts };
export type PointAnswer = Omit<Schemas["PointAnswer"], "facts" | "kernels" | "runtime" | "charts"> & {
  facts: Record<string, Cell>;
  kernels: Columns | null;
  runtime: Columns | null;
  charts: Charts;
};
