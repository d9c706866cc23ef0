import type { Kind } from "../api/model";
import { formatSigned } from "./format";

/** Return the difference of two values, with its ratio to the first if that is not negligible. */
export function formatChange(kind: Kind, before: number, now: number): string {
  const share = (now - before) / before;
  const showsShare = before > 0 && Math.abs(share) >= 0.0005;
  return formatSigned(kind, now - before) + (showsShare ? ` (${formatSigned("ratio", share)})` : "");
}
