import { createApp, nextTick, type App, type Component } from "vue";
import { afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { ALL_TEXTS, setLanguage } from "../locales";
import { sourceText, unitText, definitionText } from "./definition-texts";
import { columnSubject } from "./definitions";
import { ApiError } from "../api/client";
import InfoSign from "./info-sign.vue";
import Problem from "./problem.vue";
import { createColumns } from "./table/columns";

HTMLElement.prototype.showPopover ??= () => undefined;
HTMLElement.prototype.hidePopover ??= () => undefined;

function mount(component: Component, props: Record<string, unknown>): { app: App; host: HTMLElement } {
  const host = document.body.appendChild(document.createElement("div"));
  const app = createApp(component, props);
  app.mount(host);
  return { app, host };
}

describe("a definition", () => {
  beforeAll(() => setLanguage("en", ALL_TEXTS));
  afterEach(() => setLanguage("en", ALL_TEXTS));

  const [column] = createColumns(["device_self_ns"], { device_self_ns: "ns" }, "operator");

  it("of a column has its unit, its text and its source", () => {
    if (!column) throw new Error("no column");
    const subject = columnSubject(column, { view: "operator", scope: "operator" });
    expect(definitionText(subject)).toContain("Time of the kernels launched by the operator itself");
    expect(unitText(subject)).toContain("nanoseconds");
    expect(sourceText(subject)).toBe("view operator, column device_self_ns");
  });

  it("is in the language of the web UI", async () => {
    await setLanguage("zh", ALL_TEXTS);
    expect(definitionText({ name: "", about: "overview.devices" })).toContain("所选步中");
    expect(sourceText({ name: "", view: "idle", table: "steps" })).toBe("视图 idle，表 steps");
  });

  it("opens from a button that names it, and takes the focus", async () => {
    const { app, host } = mount(InfoSign, { subject: { name: "Devices", about: "overview.devices" } });
    const button = host.querySelector("button");
    expect(button?.getAttribute("aria-label")).toBe("About Devices");
    expect(button?.getAttribute("aria-expanded")).toBe("false");
    button?.click();
    await vi.waitFor(
      () => expect(document.querySelector("[role=dialog]")?.textContent).toContain("Devices that ran work"),
      10_000,
    );
    expect(button?.getAttribute("aria-expanded")).toBe("true");
    expect(document.querySelector("[role=dialog] [autofocus]")?.getAttribute("aria-label")).toBe("Close");
    app.unmount();
    await nextTick();
  });
});

describe("the explanation of an error", () => {
  beforeAll(() => setLanguage("en", ALL_TEXTS));

  function detailsOf(status: number, act: boolean, page: string | null = null): HTMLDetailsElement | null {
    const error = new ApiError(status, "no", null, null, null, null, [], page);
    const { host } = mount(Problem, { error, act });
    return host.querySelector("details");
  }

  it("says what usually causes it, and names the page of the documentation", async () => {
    const details = detailsOf(422, false, "formats#damaged-files");
    if (!details) throw new Error("no explanation");
    details.open = true;
    details.dispatchEvent(new Event("toggle"));
    await vi.waitFor(() => expect(details.textContent).toContain("the copy is incomplete"), 10_000);
    expect(details.textContent).toContain("docs/formats.md#damaged-files");
  });

  it("is that of the status if the server names no page", async () => {
    const details = detailsOf(404, false);
    if (!details) throw new Error("no explanation");
    details.open = true;
    details.dispatchEvent(new Event("toggle"));
    await vi.waitFor(() => expect(details.textContent).toContain("was deleted or renamed"), 10_000);
    expect(details.textContent).not.toContain("docs/");
  });

  it("is missing for errors of unknown cause and for rejected actions", () => {
    expect(detailsOf(500, false)).toBeNull();
    expect(detailsOf(409, true)).toBeNull();
  });
});
