import { beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { createApp, ref } from "vue";
import { ALL_TEXTS, setLanguage } from "../../locales";
import FitNote from "./fit-note.vue";

const model = { id: "net", name: "net.graph.json", file: "runs/net.graph.json" };
const workspace = {
  models: {
    shares: ref(new Map([["net", 0]])),
    matches: ref({ best: "net", rivals: [] as string[] }),
    sorted: ref([model]),
  },
  chosen: ref<typeof model | null>(model),
  measured: { reason: ref("") },
  state: { model: ref("") },
  choose: vi.fn(),
};
vi.mock("./workspace", () => ({ injectWorkspace: () => workspace }));

const REASON = "The run calls other layers than this model: layer 2 is Conv2D in the run and ReLU in the model.";

function notes(): HTMLElement[] {
  const host = document.createElement("div");
  createApp(FitNote).mount(host);
  return [...host.querySelectorAll("p")];
}

describe("the note about a model and a run", () => {
  beforeAll(() => setLanguage("en", ALL_TEXTS));
  beforeEach(() => {
    workspace.measured.reason.value = "";
    workspace.models.shares.value = new Map([["net", 0]]);
    workspace.state.model.value = "";
  });

  it("says in one sentence why no node has a time", () => {
    workspace.measured.reason.value = REASON;
    expect(notes().map((note) => note.textContent?.trim())).toEqual([REASON]);
  });

  it("says so for a chosen model, too", () => {
    workspace.measured.reason.value = REASON;
    workspace.state.model.value = "net";
    expect(notes().map((note) => note.textContent?.trim())).toEqual([REASON]);
  });

  it("says nothing until the reason is known", () => {
    expect(notes()).toEqual([]);
  });

  it("warns if only a small share of the time has a node", () => {
    workspace.models.shares.value = new Map([["net", 0.3]]);
    const [note] = notes();
    expect(note?.textContent).toMatch(/only 30\.0\s%/);
    expect(note?.className).toContain("doubtful");
  });
});
