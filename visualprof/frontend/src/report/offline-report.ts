// Answers the requests of the web UI from the report's own file.
import type { OfflineReport as Answers } from "../api/client";
import type { Json, JsonObject, Table, ViewsAnswer } from "../api/model";
import { t } from "../locales";
import { selectRows, toDelimitedText } from "./rows";

interface Facts {
  answers: Record<string, Json>;
  /** Position of each tile after the facts: [offset, bytes]. */
  tiles: Record<string, [number, number]>;
  names: Record<string, string>;
  steps: string[];
  /** Pattern of the ranges that are steps; null for the file's own steps. */
  step_range: string | null;
  first: Record<string, string>;
  run: string;
  /** The base run. */
  base: string | null;
  made_ms: number;
}

/** Parameters that the page applies itself, or that are the same in all requests of a report. */
const PAGE_PARAMETERS =
  /^(run|worker|span|base|base_worker|base_span|base_step|step_range|v|since|shown|sort|order|offset|limit|format|minimap|counters|arguments|height|width|row|rows|column|columns|(search|is|min|max)(\..*)?)$/;
const json = (body: unknown, status = 200) =>
  new Response(JSON.stringify(body), { status, headers: { "Content-Type": "application/json" } });

export class ReportFile implements Answers {
  private readonly facts: Facts;
  private readonly tiles: Uint8Array<ArrayBuffer>;
  /** Default values by view and parameter. */
  private readonly defaults = new Map<string, string>();

  constructor(file: ArrayBuffer) {
    const length = new DataView(file).getUint32(0, true);
    this.facts = JSON.parse(new TextDecoder().decode(new Uint8Array(file, 4, length))) as Facts;
    this.tiles = new Uint8Array(file, 4 + length);
    const { views } = this.facts.answers["views"] as unknown as ViewsAnswer;
    this.defaults.set("diff view", "overview").set("diff group", "name");
    for (const { name, parameters } of views)
      for (const parameter of parameters)
        this.defaults.set(`${name} ${parameter.name}`, String(parameter.default ?? ""));
  }

  get madeMs(): number {
    return this.facts.made_ms;
  }

  get stepRange(): string | null {
    return this.facts.step_range;
  }

  get first(): Record<string, string> {
    return this.facts.first;
  }

  /** Parameters for the address: the run and its base. */
  get shown(): Record<string, string> {
    const { run, base } = this.facts;
    return base === null ? { run } : { run, base };
  }

  holdsRun(run: string): boolean {
    return run === this.facts.run;
  }

  hasStep(name: string): boolean {
    return this.facts.steps.includes(name);
  }

  /** Return the tile or, if the file is not that detailed, the nearest coarser one. */
  nearestTile(kind: "g" | "c" | "p", id: number, level: number, index: number): [level: number, index: number] {
    for (let up = 0; up < 64; up += 1) {
      const above = Math.floor(index / 2 ** up);
      if (`${kind}${id}/${level + up}/${above}` in this.facts.tiles) return [level + up, above];
    }
    return [level, index];
  }

  answer(url: string): Response {
    const { pathname, searchParams: query } = new URL(url.slice(url.indexOf("api/v1/")), "http://report/");
    const route = pathname.replace("/api/v1/", "");
    const answer = query.has("run") && !this.holdsRun(query.get("run") ?? "") ? undefined : this.lookUp(route, query);
    return answer instanceof Response
      ? answer
      : answer === undefined
        ? json({ error: t("report.not_held"), hint: t("report.not_held_hint") }, 404)
        : json(answer);
  }

  private lookUp(route: string, query: URLSearchParams): Response | Json | object | undefined {
    if (route === "timeline/tile") return this.tile("g", query.get("group"), query);
    if (route === "timeline/counter") return this.tile("c", query.get("track"), query);
    if (route === "timeline/path") return this.tile("p", "0", query);
    if (route === "timeline/strings")
      return this.strings(Number(query.get("offset") ?? 0), Number(query.get("limit") ?? 0));
    if (route === "models/match") return { models: [], best: null, reading: 0 };
    if (route === "runs/changes" && query.has("since"))
      return { ...(this.facts.answers[route] as JsonObject), since: 0, runs: [] };
    if (route === "snapshot/blocks" && query.has("block")) return this.block(query.get("block") ?? "");
    if (route === "diff" || route === "snapshot/blocks" || route.startsWith("view/")) return this.rows(route, query);
    const answer = this.facts.answers[this.key(route, query)];
    return route === "timeline/window" && answer !== undefined ? selectRows(answer as unknown as Table, query) : answer;
  }

  private key(route: string, query: URLSearchParams): string {
    const [kind, view = ""] = route.split("/");
    const defaultValue = (name: string) =>
      this.defaults.get(`${view || kind} ${name}`) ?? (kind === "charts" && name === "top" ? "10" : "");
    const ownParameters = [...query].filter(
      ([name, value]) => !PAGE_PARAMETERS.test(name) && value !== "" && value !== defaultValue(name),
    );
    return [
      route,
      ...ownParameters.sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, value]) => `${name}=${value}`),
    ].join("&");
  }

  private rows(route: string, query: URLSearchParams): Response | object | undefined {
    const tableQuery = new URLSearchParams(query);
    tableQuery.delete("table");
    const name = query.get("table") ?? "";
    const answer = this.facts.answers[this.key(route, tableQuery)] as JsonObject | undefined;
    const table = (this.facts.answers[this.key(route, query)] ?? answer?.[name]) as unknown as Table | undefined;
    if (!table?.columns) return name ? undefined : answer;
    const rows = selectRows(table, query);
    const format = query.get("format");
    return format === null
      ? rows
      : new Response(toDelimitedText(rows, format === "tsv" ? "\t" : ","), { headers: { "Content-Type": "text/csv" } });
  }

  /** Return the table of a single block of a memory snapshot, without rows if the report does not hold it. */
  private block(id: string): object | undefined {
    const tables = Object.entries(this.facts.answers)
      .filter(([key]) => key.startsWith("snapshot/blocks"))
      .map(([, table]) => table as unknown as Table);
    const rowOf = ({ columns }: Table) =>
      (columns["block" as never] as number[]).findIndex((block) => String(block) === id);
    const table = tables.find((candidate) => rowOf(candidate) >= 0) ?? tables[0];
    if (!table) return undefined;
    const row = rowOf(table);
    const columns = Object.entries(table.columns).map(([name, column]) => [
      name,
      row < 0 ? [] : (column as unknown[]).slice(row, row + 1),
    ]);
    return { ...table, columns: Object.fromEntries(columns) as unknown, total_rows: row < 0 ? 0 : 1 };
  }

  private tile(kind: "g" | "c" | "p", id: string | null, query: URLSearchParams): Response | undefined {
    const range = this.facts.tiles[`${kind}${id}/${query.get("level")}/${query.get("index")}`];
    return range && new Response(this.tiles.slice(range[0], range[0] + range[1]));
  }

  private strings(offset: number, limit: number): object {
    return { strings: Array.from({ length: limit }, (_, index) => this.facts.names[offset + index] ?? "") };
  }
}
