import type { Kind } from "../api/model";
import { formatSigned } from "./format";

/** What lies between two figures, with its share of the first where that is no hair. */
export function formatChange(kind: Kind, before: number, now: number): string {
  const share = (now - before) / before;
  const showsShare = before > 0 && Math.abs(share) >= 0.0005;
  return formatSigned(kind, now - before) + (showsShare ? ` (${formatSigned("ratio", share)})` : "");
}
