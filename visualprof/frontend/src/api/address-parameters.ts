// Secrets in the address. They are in the fragment, which browsers never send, so that no proxy logs them.

/** Parameters of an address that are read once and then removed. */
export const SECRET_PARAMETERS = ["token", "link", "invitation", "reset", "email"] as const;

export type SecretParameters = Partial<Record<(typeof SECRET_PARAMETERS)[number], string>>;

/**
 * Return the secret parameters of an address, and the address without them. They follow `#`, or `?` of the page in the
 * fragment: `#token=a`, `#/overview?run=b&token=a`. Links of earlier versions have them in the query.
 */
export function takeSecrets(address: string): { secrets: SecretParameters; clean: URL } {
  const clean = new URL(address);
  const fragment = clean.hash.slice(1);
  const [page, rest] = fragment.startsWith("/") ? split(fragment) : ["", fragment];
  const inFragment = new URLSearchParams(rest);
  const secrets: SecretParameters = {};
  let found = false;
  for (const name of SECRET_PARAMETERS) {
    const value = inFragment.get(name) ?? clean.searchParams.get(name);
    if (value !== null) secrets[name] = value;
    if (clean.searchParams.has(name)) clean.searchParams.delete(name);
    if (!inFragment.has(name)) continue;
    inFragment.delete(name);
    found = true;
  }
  if (found) {
    const remaining = inFragment.toString();
    clean.hash = page + (remaining ? (page ? `?${remaining}` : remaining) : "");
  }
  return { secrets, clean };
}

function split(fragment: string): [string, string] {
  const at = fragment.indexOf("?");
  return at < 0 ? [fragment, ""] : [fragment.slice(0, at), fragment.slice(at + 1)];
}
