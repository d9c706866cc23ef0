import { expect, test } from "vitest";
import type { JobRow, JobsAnswer } from "../api";
import { mergeJobs } from "./jobs";

const job = (id: string, state = "waiting") => ({ id, state }) as JobRow;
const answer = (revision: number, since: number | null, jobs: JobRow[], problem: string | null = null): JobsAnswer => ({
  revision,
  since,
  jobs,
  waits: {},
  leaving: {},
  problem,
  hint: null,
});

test("changed jobs replace old ones, new ones come first, and others stay the same objects", () => {
  const previous = answer(3, null, [job("b"), job("a")]);
  const now = mergeJobs(previous, answer(5, 3, [job("d"), job("c"), job("a", "running")]));
  expect(now.jobs.map((item) => `${item.id} ${item.state}`)).toEqual([
    "d waiting",
    "c waiting",
    "b waiting",
    "a running",
  ]);
  expect(now.jobs[2]).toBe(previous.jobs[0]);
  expect(now.revision).toBe(5);
});

test("a full answer replaces everything, and an unchanged one changes nothing", () => {
  const previous = answer(3, null, [job("b"), job("a")]);
  expect(mergeJobs(previous, answer(4, null, [job("a")])).jobs.map((item) => item.id)).toEqual(["a"]);
  expect(mergeJobs(previous, answer(3, 3, []))).toBe(previous);
  expect(mergeJobs(previous, answer(3, 3, [], "the disk is full")).problem).toBe("the disk is full");
});
