// The session token. The printed link contains it; otherwise the user is asked for it.
import { shallowRef } from "vue";
import { takeSecrets } from "./address-parameters";
import type { SessionAnswer } from "./model";

// Stored per origin and path, including the port. A cookie would be sent to every port of the host, whoever serves
// there.
const TOKEN_KEY = `visualprof.token:${location.pathname}`;
const RETURN_HASH_KEY = `visualprof.place:${location.pathname}`;
const LINK_TOKEN_PREFIX = "vp_l_";
const TOKEN_HEADER = "X-Visualprof-Token";

let token = "";

/** What a user needs to log in, if the server has accounts. */
export const accountSession = shallowRef<SessionAnswer | null>(null);

/** One-time parameters of a link and its addressee, or the reply of an identity provider. */
export const linkParameters: {
  invitation?: string;
  reset?: string;
  email?: string;
  issued?: Record<"state" | "code" | "error", string>;
} = {};

/** Set while the web UI waits for the user's token. Called with a valid token, or null if the user has none. */
export const tokenPrompt = shallowRef<((token: string | null) => void) | null>(null);

/** Whether this tab was opened by a link to one run. */
export const openedByLink = () => token.startsWith(LINK_TOKEN_PREFIX);

/**
 * Return the stored token, or store a new one. If storage is forbidden (embedded pages), the token lasts as long as the
 * page.
 */
function storedToken(keep?: string): string {
  try {
    if (keep !== undefined) localStorage.setItem(TOKEN_KEY, keep);
    return localStorage.getItem(TOKEN_KEY) ?? "";
  } catch {
    return "";
  }
}

/** Return or set a value of this tab only. A link does not replace the login of other tabs. */
function tabValue(keep?: string, key = TOKEN_KEY): string {
  try {
    if (keep !== undefined) sessionStorage.setItem(key, keep);
    return sessionStorage.getItem(key) ?? "";
  } catch {
    return keep ?? "";
  }
}

/** Redirect to the identity provider. The current place is stored here, because the reply does not contain it. */
export function redirectToIssuer(issuer: string): void {
  tabValue(location.hash, RETURN_HASH_KEY);
  location.assign(issuer);
}

/** Reload the page after logging in, because a user sees other data than an anonymous visitor or a link. */
export function reloadAsUser(): void {
  tabValue("");
  location.reload();
}

function storeToken(newToken: string): void {
  tabValue("");
  token = newToken;
  storedToken(newToken);
}

/** Remove the token from the address, where others may see it and the router would keep it. */
function readAddress(): void {
  const url = new URL(location.href);
  const { secrets, clean } = takeSecrets(url.href);
  if (secrets.token !== undefined) storeToken(secrets.token);
  else token = tabValue(secrets.link) || storedToken();
  for (const name of ["invitation", "reset", "email"] as const) linkParameters[name] = secrets[name];
  const [state, code, error] = ["state", "code", "error"].map((name) => url.searchParams.get(name) ?? "") as [
    string,
    string,
    string,
  ];
  if (state && (code || error)) {
    linkParameters.issued = { state, code, error };
    clean.search = ""; // Identity providers add parameters of their own.
    clean.hash = tabValue(undefined, RETURN_HASH_KEY);
  }
  if (clean.href !== url.href) history.replaceState(history.state, "", clean);
}

/** Return the headers that authorize a request. */
export function sessionHeaders(sessionToken = token): Record<string, string> {
  return sessionToken ? { [TOKEN_HEADER]: sessionToken } : {};
}

export async function readSession(sessionToken?: string): Promise<SessionAnswer | null> {
  const answer = await fetch("api/v1/session", { headers: sessionHeaders(sessionToken) }).catch(() => null);
  return answer?.ok === true ? ((await answer.json()) as SessionAnswer) : null;
}

export async function isTrusted(sessionToken?: string): Promise<boolean> {
  return (await readSession(sessionToken))?.trusted === true;
}

let asking: Promise<boolean> | null = null;

/**
 * Ask the user for a token, once for all waiting requests. False if there is none. Another tab may have stored a token
 * already.
 */
export function requestToken(): Promise<boolean> {
  asking ??= (async () => {
    const now = await readSession();
    if (now?.person && now.token && now.token !== token) {
      token = now.token; // only for this page
      return true;
    }
    accountSession.value = now?.accounts ? now : null;
    const other = storedToken();
    const enteredToken =
      !accountSession.value && other !== token && (await isTrusted(other))
        ? other
        : await new Promise<string | null>((resolve) => (tokenPrompt.value = resolve));
    tokenPrompt.value = null;
    if (enteredToken !== null) storeToken(enteredToken);
    return enteredToken !== null;
  })().finally(() => (asking = null));
  return asking;
}

readAddress();
// A link that differs from the current address in the fragment only loads no page.
window.addEventListener("hashchange", () => {
  if (Object.keys(takeSecrets(location.href).secrets).length > 0) location.reload();
});
