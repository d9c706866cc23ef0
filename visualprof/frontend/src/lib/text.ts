/**
 * Show invisible characters of an untrusted text, such as line breaks, bells and changes of direction, so that a name
 * cannot look like another one.
 */
export function displayText(text: string): string {
  return text.replace(/[\p{Cc}\p{Bidi_Control}]/gu, (character) => {
    const code = character.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : "\ufffd";
  });
}

/** Keep both ends of a long name: kernel names differ at their end as often as at their start. */
export function shorten(text: string, limit: number): string {
  const name = displayText(text);
  if (name.length <= limit) return name;
  const head = Math.ceil((limit - 1) * 0.6);
  return `${name.slice(0, head)}…${name.slice(name.length - (limit - 1 - head))}`;
}

/**
 * Return the name of a C++ function without its return type and arguments, which is enough to tell kernels apart in a
 * legend.
 */
export function abbreviate(name: string, limit: number): string {
  const bare = name.replace(/^void /, "");
  const withoutArguments = /::|>\(/.test(bare) ? bare.replace(/\([^()]*(\([^()]*\)[^()]*)*\)( const)?$/, "") : bare;
  return shorten(withoutArguments || name, limit);
}

const ENTITIES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

/** Escape HTML, because names from traces may contain markup and chart tooltips are HTML. */
export function escapeHtml(text: string): string {
  return displayText(text).replace(/[&<>"']/g, (character) => ENTITIES[character] ?? character);
}

/** Compare versions, newest first, part by part: 1.10 comes before 1.9. */
export function compareNewestFirst(a: string, b: string): number {
  return b.localeCompare(a, "en", { numeric: true });
}
