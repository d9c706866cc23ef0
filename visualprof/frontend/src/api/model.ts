// The server's types under short names. Those in types.ts are generated ("make types") and never edited;
// where a schema says "anything", this file says what the pages may count on.
import type { components } from "./types";

export type Schemas = components["schemas"];

/** Everything a table cell can hold; lists appear for shapes, dims and stacks. */
export type Cell = string | number | boolean | null | Cell[];
export type Columns = { readonly [column: string]: Cell[] | null | undefined };
/** What is under each key of an answer, its columns included. */
export type Kinds = NonNullable<Schemas["Answer"]["kinds"]>;
export type Kind = Kinds[string];
/** Any of the server's tables. */
export type Table = Omit<Schemas["Table_CallColumns_"], "columns"> & { columns: Columns };

export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };
export type Charts = Record<string, JsonObject>;
type WithCharts<T> = Omit<T, "charts"> & { charts: Charts };

export type ChartsAnswer = WithCharts<Schemas["ChartsAnswer"]>;
export type OverviewAnswer = Schemas["OverviewAnswer"];
export type Device = Schemas["DeviceSummary"];
export type Environment = Schemas["Environment"];
export type Finding = Schemas["Finding"];
export type OperatorAnswer = Schemas["OperatorAnswer"];
export type KernelAnswer = Schemas["KernelAnswer"];
export type MemoryAnswer = Schemas["MemoryAnswer"];
export type MemoryDevice = Schemas["MemoryDevice"];
export type MemoryPeak = Schemas["MemoryPeak"];
export type DistributedAnswer = Schemas["DistributedAnswer"];
export type RankDevice = Schemas["RankDevice"];
export type Straggler = Schemas["Straggler"];
export type ProfileAnswer = Schemas["ProfileAnswer"];

export type RegistryAnswer = Schemas["RegistryAnswer"];
export type RegisteredAnswer = Schemas["RegisteredAnswer"];
export type RegisteredModel = Schemas["ModelRow"];
export type ModelVersion = Schemas["VersionRow"];
export type VersionAnswer = Schemas["VersionAnswer"];
export type LossesAnswer = Schemas["LossesAnswer"];

export type Span = Schemas["Span"];
export type SpanState = Span["state"];
export type Worker = Schemas["Worker"];
export type Run = Schemas["Run"];
export type SkippedFile = Schemas["SkippedFile"];
export type RunsAnswer = Schemas["RunsAnswer"];
export type ChangesAnswer = Schemas["ChangesAnswer"];
export type LiveAnswer = Schemas["LiveAnswer"];
export type LiveRun = Schemas["LiveRun"];
export type LiveProcess = Schemas["LiveProcess"];
export type LiveRecording = Schemas["LiveRecording"];
export type LiveTurn = Schemas["LiveTurn"];
export type NewRecording = Schemas["NewRecording"];
export type StepTimesAnswer = WithCharts<Schemas["StepTimesAnswer"]>;
export type Status = Schemas["Status"];
export type ViewInfo = Schemas["ViewInfo"];
export type ViewsAnswer = Schemas["ViewsAnswer"];
export type ErrorBody = Schemas["ErrorBody"];
export type SessionAnswer = Schemas["SessionAnswer"];
export type Person = Schemas["Person"];
export type Role = Person["role"];
export type NoticesAnswer = Schemas["NoticesAnswer"];
export type NoticeRow = Schemas["Notice"];
export type ContactAnswer = Schemas["ContactAnswer"];
export type AccountAnswer = Schemas["AccountAnswer"];
export type UsersAnswer = Schemas["UsersAnswer"];
export type UserRow = Schemas["User"];
export type UserChange = Schemas["UserChange"];
export type AuditAnswer = Schemas["AuditAnswer"];
export type ProjectsAnswer = Schemas["ProjectsAnswer"];
export type ProjectRow = Schemas["Project"];
export type LinksAnswer = Schemas["LinksAnswer"];
export type QuotaRow = Schemas["QuotaRow"];
export type QuotasAnswer = Schemas["QuotasAnswer"];
export type HealthAnswer = Schemas["HealthAnswer"];
export type RetentionAnswer = Schemas["RetentionAnswer"];
export type RuleRow = Schemas["RuleRow"];
export type RemovedAnswer = Schemas["RemovedAnswer"];
export type Wait = Schemas["Wait"];
export type UsedRow = Schemas["UsedRow"];
export type AccessAnswer = Schemas["AccessAnswer"];
export type Visibility = AccessAnswer["visibility"];

export type UploadAnswer = Schemas["UploadAnswer"];
export type Way = Schemas["Way"];
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
export type FreedAnswer = Schemas["FreedAnswer"];
export type ResultRow = Schemas["ResultRow"];
export type JobAnswer = Schemas["JobAnswer"];
export type PointRow = Schemas["PointRow"];
export type LogAnswer = Schemas["LogAnswer"];
export type AgentRow = Schemas["AgentRow"];
export type AgentsAnswer = Schemas["AgentsAnswer"];
export type AgentChange = Schemas["AgentChange"];
export type GrantRow = Schemas["Grant"];
export type BookingRow = Schemas["BookingRow"];
export type Enrolment = Schemas["Enrolment"];
export type Runtime = Schemas["Runtime"];
export type BackendEntry = Schemas["BackendEntry"];
export type BackendsAnswer = Schemas["BackendsAnswer"];
export type ReportRow = Schemas["ReportRow"];
export type ReportsAnswer = Schemas["ReportsAnswer"];
export type Verdict = Schemas["Verdict"];
export type DiffAnswer = Schemas["DiffAnswer"];
export type EvaluationAnswer = WithCharts<Schemas["EvaluationAnswer"]>;
export type TrendAnswer = WithCharts<Schemas["TrendAnswer"]>;
export type PointAnswer = WithCharts<Schemas["PointAnswer"]>;
