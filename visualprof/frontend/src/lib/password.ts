// How hard a password is to guess, as far as it can be told without a list of those that are in use.

/** As the server wants it (accounts/passwords.py). */
export const MIN_LENGTH = 10;
const MIN_LETTERS = 4;
const STRONG_BITS = 60;

export type Strength = "short" | "easy" | "fair" | "good";

/** The first two are refused. Each character counts as much as the different ones of the password allow. */
export function passwordStrength(password: string, email: string): Strength {
  const letters = new Set(password).size;
  const address = email.trim().toLowerCase();
  if (password.length < MIN_LENGTH) return "short";
  if (letters < MIN_LETTERS || [address, address.split("@")[0]].includes(password.toLowerCase())) return "easy";
  return password.length * Math.log2(letters) >= STRONG_BITS ? "good" : "fair";
}
