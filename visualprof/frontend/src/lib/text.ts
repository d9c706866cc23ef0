/**
 * Text of strangers with what would break a line, ring or turn the reading direction made visible.
 * A name that pretends to be another one must not look like it.
 */
export function displayText(text: string): string {
  return text.replace(/[\p{Cc}\p{Bidi_Control}]/gu, (character) => {
    const code = character.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : "\ufffd";
  });
}

/** Keeps both ends of a long name: kernel names differ at their end as often as at their start. */
export function shorten(text: string, limit: number): string {
  const name = displayText(text);
  if (name.length <= limit) return name;
  const head = Math.ceil((limit - 1) * 0.6);
  return `${name.slice(0, head)}…${name.slice(name.length - (limit - 1 - head))}`;
}

/** A C++ function without its return type and arguments: what is left tells kernels apart in a legend. */
export function abbreviate(name: string, limit: number): string {
  const bare = name.replace(/^void /, "");
  const withoutArguments = /::|>\(/.test(bare) ? bare.replace(/\([^()]*(\([^()]*\)[^()]*)*\)( const)?$/, "") : bare;
  return shorten(withoutArguments || name, limit);
}

const ENTITIES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

/** Names come from traces and may hold markup; chart tooltips are HTML. */
export function escapeHtml(text: string): string {
  return displayText(text).replace(/[&<>"']/g, (character) => ENTITIES[character] ?? character);
}

/** Orders versions newest first, part by part: 1.10 comes before 1.9. */
export function compareNewestFirst(a: string, b: string): number {
  return b.localeCompare(a, "en", { numeric: true });
}
