// The entry of a report: the same page, answered from what its file holds (visualprof/server/report.py).
import { hold } from "../api/client";
import { ALL_TEXTS, speak } from "../locales";
import { addPages, router } from "../router";
import { leave } from "../state/address";
import { language } from "../state/preferences";
import { Held } from "./offline-report";
import { REPORT_PAGES } from "./pages";
import "./print.css";

declare global {
  var visualprofReport: ArrayBuffer;
}

const held = new Held(globalThis.visualprofReport);
hold(held);
// The timeline begins with the longest step, and what ran in it.
leave("/trace", held.first);

async function begin(): Promise<void> {
  addPages(REPORT_PAGES);
  await speak(language.value, ALL_TEXTS);
  const asked = router.resolve(/^#\/./.test(location.hash) ? location.hash.slice(1) : "/overview");
  if (!("run" in asked.query)) await router.replace({ path: asked.path, query: { ...held.shown, ...asked.query } });
  const { start } = await import("../start");
  await start();
}
void begin();
