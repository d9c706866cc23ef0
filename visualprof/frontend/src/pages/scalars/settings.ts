// The settings that all cards share.
import type { Query } from "../../api";

export interface CardSettings {
  /** Parameters of the requests, without the tag. */
  query: Query & { runs: string };
  logX: boolean;
  logY: boolean;
  /** Whether outliers are cut off. */
  clip: boolean;
  /** Whether the lines are smoothed. */
  smoothed: boolean;
  formatX: (value: number) => string;
}
