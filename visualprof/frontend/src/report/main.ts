// The entry point of a report: the same web UI, answered from the content of its file (visualprof/server/report.py).
import { setOfflineReport } from "../api/client";
import { ALL_TEXTS, setLanguage } from "../locales";
import { addPages, router } from "../router";
import { rememberQuery } from "../state/address";
import { language } from "../state/preferences";
import { ReportFile } from "./offline-report";
import { REPORT_PAGES } from "./pages";
import "./print.css";

declare global {
  var visualprofReport: ArrayBuffer;
}

const reportFile = new ReportFile(globalThis.visualprofReport);
setOfflineReport(reportFile);
// The timeline starts with the longest step and its events.
rememberQuery("/trace", reportFile.first);

async function startReport(): Promise<void> {
  addPages(REPORT_PAGES);
  await setLanguage(language.value, ALL_TEXTS);
  const target = router.resolve(/^#\/./.test(location.hash) ? location.hash.slice(1) : "/overview");
  if (!("run" in target.query))
    await router.replace({ path: target.path, query: { ...reportFile.shown, ...target.query } });
  const { start } = await import("../start");
  await start();
}
void startReport();
