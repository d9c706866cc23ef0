// Equal problems are solved once: identical layers of a model share one layout.
import { solve } from "./layered";
import type { Problem, Solution } from "./problem";

const MAX_SOLUTIONS = 4000;

/** Return everything that a solution depends on, as text. */
function problemKey(problem: Problem): string {
  const parts = [
    problem.role,
    problem.tail,
    problem.head,
    problem.slot,
    problem.width,
    problem.height,
    problem.tailOffset,
    problem.headOffset,
  ];
  return `${problem.spacing.rank};${parts.map((part) => part.join()).join(";")}`;
}

export class SolutionCache {
  private readonly solved = new Map<string, Solution>();
  hits = 0;

  solve(problem: Problem): Solution {
    const key = problemKey(problem);
    const cached = this.solved.get(key);
    if (cached) {
      this.hits += 1;
      return cached;
    }
    const fresh = solve(problem);
    if (this.solved.size >= MAX_SOLUTIONS) this.solved.clear();
    this.solved.set(key, fresh);
    return fresh;
  }
}
