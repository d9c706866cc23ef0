// Answers what the page asks from what stands in the report's own file.
import type { Held as Answers } from "../api/client";
import type { Json, JsonObject, Table, ViewsAnswer } from "../api/model";
import { t } from "../locales";
import { rowsOf, textOf } from "./rows";

interface Facts {
  answers: Record<string, Json>;
  /** Where each tile stands behind the facts: [offset, bytes]. */
  tiles: Record<string, [number, number]>;
  names: Record<string, string>;
  steps: string[];
  first: Record<string, string>;
  run: string;
  /** What it is compared with. */
  base: string | null;
  made_ms: number;
}

/** What the page selects by itself, or what is the same in all questions of a report. */
const OWN =
  /^(run|worker|span|base|base_worker|base_span|base_step|v|since|shown|sort|order|offset|limit|format|minimap|arguments|height|width|row|rows|column|columns|(search|is|min|max)(\..*)?)$/;
const json = (body: unknown, status = 200) =>
  new Response(JSON.stringify(body), { status, headers: { "Content-Type": "application/json" } });

export class Held implements Answers {
  private readonly facts: Facts;
  private readonly tiles: Uint8Array<ArrayBuffer>;
  /** By view and parameter, what is not said. */
  private readonly usual = new Map<string, string>();

  constructor(file: ArrayBuffer) {
    const length = new DataView(file).getUint32(0, true);
    this.facts = JSON.parse(new TextDecoder().decode(new Uint8Array(file, 4, length))) as Facts;
    this.tiles = new Uint8Array(file, 4 + length);
    const { views } = this.facts.answers["views"] as unknown as ViewsAnswer;
    this.usual.set("diff view", "overview").set("diff group", "name");
    for (const { name, parameters } of views)
      for (const one of parameters) this.usual.set(`${name} ${one.name}`, String(one.default ?? ""));
  }

  get madeMs(): number {
    return this.facts.made_ms;
  }

  get first(): Record<string, string> {
    return this.facts.first;
  }

  /** Of the address: the run, and what it is compared with. */
  get shown(): Record<string, string> {
    const { run, base } = this.facts;
    return base === null ? { run } : { run, base };
  }

  isOf(run: string): boolean {
    return run === this.facts.run;
  }

  hasStep(name: string): boolean {
    return this.facts.steps.includes(name);
  }

  /** The tile itself or, of what the file does not hold so deep, the one above it. */
  nearest(kind: "g" | "c" | "p", id: number, level: number, index: number): [level: number, index: number] {
    for (let up = 0; up < 64; up += 1) {
      const above = Math.floor(index / 2 ** up);
      if (`${kind}${id}/${level + up}/${above}` in this.facts.tiles) return [level + up, above];
    }
    return [level, index];
  }

  answer(url: string): Response {
    const { pathname, searchParams: asked } = new URL(url.slice(url.indexOf("api/v1/")), "http://report/");
    const route = pathname.replace("/api/v1/", "");
    const found = asked.has("run") && !this.isOf(asked.get("run") ?? "") ? undefined : this.found(route, asked);
    return found instanceof Response
      ? found
      : found === undefined
        ? json({ error: t("report.not_held"), hint: t("report.not_held_hint") }, 404)
        : json(found);
  }

  private found(route: string, asked: URLSearchParams): Response | Json | object | undefined {
    if (route === "timeline/tile") return this.tile("g", asked.get("group"), asked);
    if (route === "timeline/counter") return this.tile("c", asked.get("track"), asked);
    if (route === "timeline/path") return this.tile("p", "0", asked);
    if (route === "timeline/strings")
      return this.strings(Number(asked.get("offset") ?? 0), Number(asked.get("limit") ?? 0));
    if (route === "models/match") return { models: [], best: null, reading: 0 };
    if (route === "runs/changes" && asked.has("since"))
      return { ...(this.facts.answers[route] as JsonObject), since: 0, runs: [] };
    if (route === "diff" || route.startsWith("view/")) return this.rows(route, asked);
    const answer = this.facts.answers[this.key(route, asked)];
    return route === "timeline/window" && answer !== undefined ? rowsOf(answer as unknown as Table, asked) : answer;
  }

  private key(route: string, asked: URLSearchParams): string {
    const [kind, view = ""] = route.split("/");
    const usual = (name: string) =>
      this.usual.get(`${view || kind} ${name}`) ?? (kind === "charts" && name === "top" ? "10" : "");
    const own = [...asked].filter(([name, value]) => !OWN.test(name) && value !== "" && value !== usual(name));
    return [route, ...own.sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, value]) => `${name}=${value}`)].join("&");
  }

  private rows(route: string, asked: URLSearchParams): Response | object | undefined {
    const whole = new URLSearchParams(asked);
    whole.delete("table");
    const name = asked.get("table") ?? "";
    const answer = this.facts.answers[this.key(route, whole)] as JsonObject | undefined;
    const table = (this.facts.answers[this.key(route, asked)] ?? answer?.[name]) as unknown as Table | undefined;
    if (!table?.columns) return name ? undefined : answer;
    const rows = rowsOf(table, asked);
    const format = asked.get("format");
    return format === null
      ? rows
      : new Response(textOf(rows, format === "tsv" ? "\t" : ","), { headers: { "Content-Type": "text/csv" } });
  }

  private tile(kind: "g" | "c" | "p", id: string | null, asked: URLSearchParams): Response | undefined {
    const place = this.facts.tiles[`${kind}${id}/${asked.get("level")}/${asked.get("index")}`];
    return place && new Response(this.tiles.slice(place[0], place[0] + place[1]));
  }

  private strings(offset: number, limit: number): object {
    return { strings: Array.from({ length: limit }, (_, place) => this.facts.names[offset + place] ?? "") };
  }
}
