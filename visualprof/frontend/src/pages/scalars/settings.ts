// The settings that all cards share.
import type { Query, RecordedRange } from "../../api";
import type { BandKind } from "../../run-data/bands";
import type { Axis } from "../../run-data/positions";

export interface CardSettings {
  /** Parameters of the requests, without the tag. */
  query: Query & { runs: string };
  axis: Axis;
  /** Recordings of the shown runs. */
  recordings: readonly RecordedRange[];
  /** The band around the mean of lines with the same color. */
  band: BandKind;
  logX: boolean;
  logY: boolean;
  /** Whether outliers are cut off. */
  clip: boolean;
  /** Whether the lines are smoothed. */
  smoothed: boolean;
  formatX: (value: number) => string;
}
