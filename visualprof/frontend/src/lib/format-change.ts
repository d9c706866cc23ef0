import type { Kind } from "../api/model";
import { signedText } from "./format";

/** What lies between two figures, with its share of the first where that is no hair. */
export function change(kind: Kind, before: number, now: number): string {
  const share = (now - before) / before;
  const showsShare = before > 0 && Math.abs(share) >= 0.0005;
  return signedText(kind, now - before) + (showsShare ? ` (${signedText("ratio", share)})` : "");
}
