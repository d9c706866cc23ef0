// The entry of a report: the same page, answered from what its file holds (visualprof/server/report.py).
import { hold } from "../api/client";
import { speak } from "../locales";
import { router } from "../router";
import { leave } from "../state/address";
import { language } from "../state/preferences";
import { Held } from "./held";

declare global {
  var visualprof_report: ArrayBuffer;
}

const held = new Held(globalThis.visualprof_report);
hold(held);
// The timeline begins with the longest step, and what ran in it.
leave("/trace", held.first);

async function begin(): Promise<void> {
  await speak(language.value, true);
  if (!/^#\/./.test(location.hash)) await router.replace({ path: "/overview", query: held.shown });
  await import("../main");
}
void begin();
