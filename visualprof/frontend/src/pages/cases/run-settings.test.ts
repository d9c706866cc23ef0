import { expect, test } from "vitest";
import { runCommand, parseSettings } from "./run-settings";

test("settings are parsed as keys and values, with quotes around spaces", () => {
  expect(parseSettings(' batch_size=8  flops="2 * 4e9" ')).toEqual({
    settings: { batch_size: "8", flops: "2 * 4e9" },
    invalid: "",
  });
  expect(parseSettings("batch_size 8").invalid).toBe("batch_size");
  expect(parseSettings("repeat=").invalid).toBe("repeat=");
});

test("the command contains values that differ from the defaults, and quotes for the shell", () => {
  const wish = {
    name: "digits",
    framework: "",
    vendor: "cpu",
    compilers: ["openvino"],
    settings: {},
    machines: [],
    timeout: "3600",
    stepTimeout: "",
  };
  expect(runCommand(wish)).toBe("visualprof case run digits --compiler openvino");
  const more = {
    ...wish,
    compilers: ["onnxruntime", "openvino"],
    settings: { flops: "2 * 4" },
    machines: ["lab's", "b"],
    stepTimeout: "60",
  };
  expect(runCommand(more)).toContain(
    `visualprof case run digits --matrix compiler=onnxruntime,openvino --set 'flops=2 * 4' --step-timeout 60 --agent 'lab'\\''s,b'`,
  );
});
