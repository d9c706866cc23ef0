// The entry of a report: the same page, answered from what its file holds (visualprof/server/report.py).
import { hold } from "../api/client";
import { speak } from "../locales";
import { router } from "../router";
import { leave } from "../state/address";
import { language } from "../state/preferences";
import { Held } from "./held";
import "./print.css";

declare global {
  var visualprof_report: ArrayBuffer;
}

const held = new Held(globalThis.visualprof_report);
hold(held);
// The timeline begins with the longest step, and what ran in it.
leave("/trace", held.first);

async function begin(): Promise<void> {
  await speak(language.value, true);
  const asked = router.resolve(/^#\/./.test(location.hash) ? location.hash.slice(1) : "/overview");
  if (!("run" in asked.query)) await router.replace({ path: asked.path, query: { ...held.shown, ...asked.query } });
  await import("../main");
}
void begin();
