import { expect, it } from "vitest";
import { loadServerMessages, translateMessage, setLanguage } from ".";
import en from "./server/en.json";
import zh from "./server/zh.json";

it("translates every message of the server", async () => {
  await setLanguage("zh");
  await loadServerMessages("zh");
  const filled = (text: string) => text.replace(/\{(\d+)\}/g, (_slot, index: string) => `v${index}`);
  const translations = new Map<string, Set<string>>();
  for (const [id, text] of Object.entries(en))
    translations.set(
      filled(text),
      (translations.get(filled(text)) ?? new Set()).add(filled(zh[id as keyof typeof zh])),
    );
  const wrong = [...translations].filter(([english, words]) => !words.has(translateMessage(english)));
  expect(wrong).toEqual([]);
});

it.each([
  ["rank0.json: not a whole ONNX model (damaged (over 3 steps))", "rank0.json：ONNX 模型不完整（已损坏（超过 3 步））"],
  ["the run 'a: b' has no data for the view 'memory'", "运行 'a: b' 没有 'memory' 视图所需的数据"],
  [
    "no agent that is online can run this ONNX model; there is openvino 2026.0",
    "没有在线的代理程序能运行该 ONNX 模型；现有 openvino 2026.0",
  ],
  [
    "run1/train/events.out.tfevents.1: 23 bytes were skipped in 1 places, the first at byte 167: the checksum of a record is wrong",
    "run1/train/events.out.tfevents.1：在 1 处共跳过 23 字节，第一处位于字节 167：一条记录的校验和错误",
  ],
  ["it has data for: overview, kernel", "可用的视图：overview, kernel"],
  ["a backend of somebody else's failed: E_42", "a backend of somebody else's failed: E_42"],
])("translates nested messages: %s", (english, chinese) => expect(translateMessage(english)).toBe(chinese));

it("does not translate English", async () => {
  await setLanguage("en");
  expect(translateMessage("the server is read-only")).toBe("the server is read-only");
});
