// The statement on the page, its parameters, and its result. They outlive a visit of another page.
import { useIntervalFn } from "@vueuse/core";
import { ref, shallowRef } from "vue";
import { address, asError, fetchApi, send, type ApiError, type Query } from "../../api";
import { downloadFile } from "../../lib/download";
import { parametersOf } from "./sql";
import type { QueryAnswer } from "./result-links";

type Value = string | number | boolean | null;
export type Values = Readonly<Record<string, Value>>;

/** The text in the editor. */
export const draft = ref("");
/** The texts in the fields of the parameters. */
export const parameterTexts = ref<Record<string, string>>({});
/** Parameters that are texts even if they look like numbers. */
const textParameters = ref<ReadonlySet<string>>(new Set());

export interface Result {
  /** What was asked, as `questionKey`. */
  key: string;
  sql: string;
  answer: QueryAnswer;
}

const result = shallowRef<Result | null>(null);
const error = shallowRef<ApiError | null>(null);
const running = ref(false);
const canceled = ref(false);
const elapsedMs = ref(0);
/** The statement that was sent, without surrounding space. */
const sent = ref("");
const TICK_MS = 100;
const MAX_FILE_ROWS = 1_000_000;
const CANCEL_RETRY_MS = 200;
let queryId = "";
let counter = 0;

/** Put a statement into the editor. */
export function openStatement(sql: string, values: Values = {}): void {
  draft.value = sql;
  parameterTexts.value = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, String(value ?? "")]));
  textParameters.value = new Set(Object.keys(values).filter((name) => typeof values[name] === "string"));
}

/** Return the values of a statement's parameters: numbers as numbers, unless the parameter is a text. */
export function parameterValues(sql: string): Record<string, Value> {
  return Object.fromEntries(
    parametersOf(sql).map((name) => {
      const text = parameterTexts.value[name] ?? "";
      const isNumber = text.trim() !== "" && Number.isFinite(Number(text)) && !textParameters.value.has(name);
      return [name, isNumber ? Number(text) : text];
    }),
  );
}

/** Identifies a question: a statement with its parameters about a selection. */
export function questionKey(selection: Query, workers: readonly string[], sql: string): string {
  const { run, worker, span, step_range } = selection;
  return JSON.stringify([run, workers.length > 0 ? workers : worker, span, step_range, sql, parameterValues(sql)]);
}

function requestBody(selection: Query, workers: readonly string[], sql: string): Record<string, unknown> {
  const { run, worker, span, step_range } = selection;
  return {
    run,
    worker: worker ?? "",
    span: span ?? "",
    step_range: step_range ?? "",
    workers,
    sql,
    parameters: parameterValues(sql),
  };
}

/** Run statements, one at a time. */
export function useQueryRun() {
  let startedAt = 0;
  const ticking = useIntervalFn(() => (elapsedMs.value = performance.now() - startedAt), TICK_MS, { immediate: false });

  async function run(selection: Query, workers: readonly string[], limit: number): Promise<void> {
    const sql = draft.value.trim();
    if (running.value || sql === "") return;
    queryId = `page-${Date.now()}-${(counter += 1)}`;
    startedAt = performance.now();
    running.value = true;
    canceled.value = false;
    elapsedMs.value = 0;
    sent.value = sql;
    ticking.resume();
    try {
      const body = { ...requestBody(selection, workers, sql), limit, id: queryId };
      const answer = await send<QueryAnswer>("POST", address("query"), body);
      result.value = { key: questionKey(selection, workers, sql), sql, answer };
      error.value = null;
    } catch (exception) {
      result.value = null;
      error.value = canceled.value ? null : asError(exception);
    } finally {
      ticking.pause();
      running.value = false;
    }
  }

  /** Stop the running query. The server may not have started it yet, so that the request is repeated. */
  async function cancel(): Promise<void> {
    const id = queryId;
    canceled.value = running.value;
    while (running.value && id === queryId) {
      const answer = await send<{ canceled: boolean }>("POST", address("query/cancel"), { id }).catch(() => null);
      if (answer?.canceled) return;
      await new Promise((resolve) => setTimeout(resolve, CANCEL_RETRY_MS));
    }
  }

  /** Download all rows of the shown result, with more rows than the page shows. */
  async function download(selection: Query, workers: readonly string[], format: "csv" | "parquet"): Promise<void> {
    const sql = result.value?.sql ?? "";
    try {
      const body = JSON.stringify({ ...requestBody(selection, workers, sql), format, limit: MAX_FILE_ROWS });
      const headers = { "Content-Type": "application/json" };
      const response = await fetchApi(address("query"), { method: "POST", headers, body });
      downloadFile(await response.blob(), `query.${format}`);
    } catch (exception) {
      error.value = asError(exception);
    }
  }

  return { result, error, running, canceled, elapsedMs, sent, run, cancel, download };
}
