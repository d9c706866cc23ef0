// The jobs of the server, live, and actions on a job.
import { computed } from "vue";
import { address, get, send, type JobAnswer, type JobRow, type JobsAnswer, type JobState, type TaskRow } from "../api";
import { usePolled } from "../state/polling";

const ACTIVE_POLL_MS = 1000;
const IDLE_POLL_MS = 3000;

const FINAL: ReadonlySet<JobState> = new Set<JobState>(["succeeded", "failed", "cancelled"]);
export const STATES: readonly JobState[] = ["running", "waiting", "failed", "succeeded", "cancelled"];

export function isFinished(state: JobState): boolean {
  return FINAL.has(state);
}

function pauseMs(answer: JobsAnswer | null): number {
  return answer?.jobs.every((job) => isFinished(job.state)) ? IDLE_POLL_MS : ACTIVE_POLL_MS;
}

/** Merge changes into the known jobs. Unchanged jobs stay the same objects. */
export function mergeJobs(previous: JobsAnswer | null, answer: JobsAnswer): JobsAnswer {
  if (answer.since === null || previous === null) return answer;
  if (answer.revision === previous.revision && queueState(answer) === queueState(previous)) return previous;
  const changed = new Map(answer.jobs.map((job) => [job.id, job]));
  const oldJobs = previous.jobs.map((job) => changed.get(job.id) ?? job);
  for (const job of oldJobs) changed.delete(job.id);
  return { ...answer, jobs: [...changed.values(), ...oldJobs] };
}

/** State that changes without the jobs. */
const queueState = ({ problem, waits, leaving }: JobsAnswer) => JSON.stringify([problem, waits, leaving]);

export function useJobs() {
  let previous: JobsAnswer | null = null;
  const polled = usePolled<JobsAnswer>(
    () => address("jobs"),
    pauseMs,
    async (_, { signal }) => {
      const answer = await get<JobsAnswer>(address("jobs", { since: previous?.revision }), { signal });
      const body = answer && mergeJobs(previous, answer.body);
      if (!body || body === previous) return null;
      previous = body;
      return { body, etag: null };
    },
  );
  const jobs = computed<JobRow[]>(() => polled.data.value?.jobs ?? []);
  return { ...polled, jobs };
}

/** One job with its points, while there is one to request. */
export function useJob(id: () => string | null) {
  return usePolled<JobAnswer>(
    () => (id() === null ? null : address(`jobs/${encodeURIComponent(id() ?? "")}`)),
    (answer) => (answer && isFinished(answer.job.state) ? IDLE_POLL_MS : ACTIVE_POLL_MS),
  );
}

export function actOnJob(id: string, action: "cancel" | "retry"): Promise<JobAnswer> {
  return send<JobAnswer>("POST", address(`jobs/${encodeURIComponent(id)}/${action}`));
}

/** Return the distinct values of the job's tasks, without empty ones. */
function distinctValues(job: JobRow, value: (task: TaskRow) => string | null | undefined): string[] {
  return [...new Set(job.tasks.flatMap((task) => value(task) || []))];
}

export const jobAgents = (job: JobRow) => distinctValues(job, (task) => task.agent_name);
/** Return pairs of runtime and version, each once; the version is empty until a task has started. */
export function jobRuntimes(job: JobRow): [backend: string, version: string][] {
  const pairs = distinctValues(job, (task) => JSON.stringify([task.backend, task.version ?? ""]));
  return pairs.map((pair) => JSON.parse(pair) as [string, string]);
}
/** Return the phases of the running tasks. */
export const jobPhases = (job: JobRow) => distinctValues(job, (task) => (task.state === "running" ? task.phase : null));

export function hasResult(task: TaskRow): task is TaskRow & { run: string } {
  return task.run !== null;
}

/** Whether all words of a search occur in the job. */
export function matchesSearch(job: JobRow, search: string): boolean {
  const text = [
    job.id,
    job.name,
    job.model,
    ...job.data,
    ...job.tasks.flatMap((task) => [
      task.spec,
      task.backend,
      task.version ?? "",
      task.agent_name ?? "",
      task.error ?? "",
    ]),
  ]
    .join(" ")
    .toLowerCase();
  return search
    .toLowerCase()
    .split(/\s+/)
    .filter(Boolean)
    .every((word) => text.includes(word));
}
