// Estimate how hard a password is to guess, without a list of known passwords.

/** The same rules as on the server (accounts/passwords.py). */
export const MIN_LENGTH = 10;
const MIN_LETTERS = 4;
const STRONG_BITS = 60;

export type Strength = "short" | "easy" | "fair" | "good";

/** The server rejects the first two. The entropy per character is log2 of the number of distinct characters. */
export function passwordStrength(password: string, email: string): Strength {
  const letters = new Set(password).size;
  const address = email.trim().toLowerCase();
  if (password.length < MIN_LENGTH) return "short";
  if (letters < MIN_LETTERS || [address, address.split("@")[0]].includes(password.toLowerCase())) return "easy";
  return password.length * Math.log2(letters) >= STRONG_BITS ? "good" : "fair";
}
