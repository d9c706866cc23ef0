import { describe, expect, it } from "vitest";
import type { AgentRow } from "../../api/model";
import { new_spec } from "./draft";
import { devices_for, newer_first, prefilled, spec_ids, versions_for } from "./specs";

function agent(id: string, platform: "x86" | "cuda" | "arm", runtimes: [backend: string, version: string, devices: string[]][], online = true): AgentRow {
  return {
    id, name: id, address: "", public: true, local: false, online, last_seen_ns: 0, registered_ns: 0, tasks: [],
    capabilities: {
      platform, machine: "", system: "", hostname: "", cpu: "", cores: 1, memory_bytes: 1, sandbox: 0, version: "",
      runtimes: runtimes.map(([backend, version, devices]) => ({ backend, version, python: "", python_version: "", devices })),
    },
  };
}

const lab = agent("lab", "x86", [["onnxruntime", "1.9.0", ["cpu"]], ["onnxruntime", "1.31.1", ["cpu"]], ["openvino", "2026.4.1", ["cpu"]]]);
const gpu = agent("gpu", "cuda", [["onnxruntime", "1.23.2", ["cpu", "cuda:0"]]]);
const away = agent("away", "arm", [["onnxruntime", "1.1.0", ["cpu"]]], false);

describe("specs", () => {
  it("are one for each runtime of each online machine, on its best device", () => {
    const rows = prefilled(["onnxruntime", "openvino"], [lab, gpu, away]);
    expect(rows.map((row) => [row.backend, row.where, row.device])).toEqual([["onnxruntime", "agent:lab", "cpu"], ["onnxruntime", "agent:gpu", "cuda:0"], ["openvino", "agent:lab", "cpu"]]);
  });
  it("are one for each runtime that would load it where no machine is there yet", () => expect(prefilled(["openvino", "torch"], [away]).map((row) => [row.backend, row.where, row.device])).toEqual([["openvino", "", "cpu"], ["torch", "", "cpu"]]));
  it("leave the machine open when there is only one", () => expect(prefilled(["openvino"], [lab])[0]?.where).toBe(""));
  it("offer the versions of the chosen machine, newest first", () => expect(versions_for(new_spec({ backend: "onnxruntime", where: "agent:lab" }), [lab, gpu])).toEqual(["1.31.1", "1.9.0"]));
  it("offer the devices of a platform", () => expect(devices_for(new_spec({ backend: "onnxruntime", where: "platform:cuda" }), [lab, gpu])).toEqual(["cpu", "cuda:0"]));
  it("order versions by their parts", () => expect(["1.9", "1.10"].sort(newer_first)).toEqual(["1.10", "1.9"]));
});

describe("spec_ids", () => {
  it("say what tells the rows apart", () => expect(spec_ids([new_spec({ backend: "onnxruntime", where: "agent:gpu", device: "cuda:0", precision: "f16", threads: "4" })], [gpu])).toEqual(["onnxruntime-gpu-cuda0-f16-4t"]));
  it("are each there once, and leave typed ones alone", () =>
    expect(spec_ids([new_spec({ backend: "a" }), new_spec({ backend: "b", id: "a" }), new_spec({ backend: "a" })], [])).toEqual(["a-2", "a", "a-3"]));
  it("are folder names, whatever the machine is called", () => {
    const odd = { ...gpu, name: "../树莓派 <5>" };
    for (const id of spec_ids([new_spec({ backend: "a", where: "agent:gpu" })], [odd])) expect(id).toMatch(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,47}$/);
  });
});
