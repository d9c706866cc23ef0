// The token of the server's session: it comes with the printed link, or the user is asked for it.
import { shallowRef } from "vue";
import type { SessionAnswer } from "./model";

// Of this origin and path, its port included: a cookie would go to every port of the host, whoever serves there.
const TOKEN_KEY = `visualprof.token:${location.pathname}`;
const RETURN_HASH_KEY = `visualprof.place:${location.pathname}`;
const LINK_TOKEN_PREFIX = "vp_l_";
const TOKEN_HEADER = "X-Visualprof-Token";

let token = "";

/** Where people have accounts: what they need to log in. */
export const accountSession = shallowRef<SessionAnswer | null>(null);

/** What a link carries that does one thing once, and for whom it is; or what an issuer sent the browser back with. */
export const linkParameters: {
  invitation?: string;
  reset?: string;
  email?: string;
  issued?: Record<"state" | "code" | "error", string>;
} = {};
const ONE_TIME_PARAMETERS = ["invitation", "reset", "email"] as const;

/** Somebody waits for the user's token; answered with one that is right, or null when he has none. */
export const tokenPrompt = shallowRef<((token: string | null) => void) | null>(null);

/** Did this tab come by a link to one run? */
export const openedByLink = () => token.startsWith(LINK_TOKEN_PREFIX);

/** Storage may be forbidden, as in an embedded page: the token then lasts as long as the page. */
function storedToken(keep?: string): string {
  try {
    if (keep !== undefined) localStorage.setItem(TOKEN_KEY, keep);
    return localStorage.getItem(TOKEN_KEY) ?? "";
  } catch {
    return "";
  }
}

/** A link is this tab's alone: who has an account is still logged in elsewhere. */
function tabValue(keep?: string, key = TOKEN_KEY): string {
  try {
    if (keep !== undefined) sessionStorage.setItem(key, keep);
    return sessionStorage.getItem(key) ?? "";
  } catch {
    return keep ?? "";
  }
}

/** Goes to the issuer. Where one was is kept here: nothing that comes back says where to go. */
export function redirectToIssuer(issuer: string): void {
  tabValue(location.hash, RETURN_HASH_KEY);
  location.assign(issuer);
}

/** What was shown to nobody, or by a link, is not what a person sees. */
export function reloadAsUser(): void {
  tabValue("");
  location.reload();
}

function storeToken(newToken: string): void {
  tabValue("");
  token = newToken;
  storedToken(newToken);
}

/** Takes the token out of the address, where others may see it, and the router would keep it. */
function readAddress(): void {
  const url = new URL(location.href);
  const urlToken = url.searchParams.get("token");
  if (urlToken !== null) storeToken(urlToken);
  else token = tabValue(url.searchParams.get("link") ?? undefined) || storedToken();
  for (const name of ONE_TIME_PARAMETERS) linkParameters[name] = url.searchParams.get(name) ?? undefined;
  const clean = new URL(url);
  for (const name of ["token", "link", ...ONE_TIME_PARAMETERS]) clean.searchParams.delete(name);
  const [state, code, error] = ["state", "code", "error"].map((name) => url.searchParams.get(name) ?? "") as [
    string,
    string,
    string,
  ];
  if (state && (code || error)) {
    linkParameters.issued = { state, code, error };
    clean.search = ""; // issuers add things of their own
    clean.hash = tabValue(undefined, RETURN_HASH_KEY);
  }
  if (clean.href !== url.href) history.replaceState(history.state, "", clean);
}

/** What a request carries. */
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

/** Asks the user, all who need it at once; false when he has no token. Another page of this browser may have it by now. */
export function requestToken(): Promise<boolean> {
  asking ??= (async () => {
    const now = await readSession();
    if (now?.person && now.token && now.token !== token) {
      token = now.token; // of this page's session alone
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
