/** The option that names this server in a command; empty for the default address. */
export const serverOption = /^http:\/\/(127\.0\.0\.1|localhost):8040$/.test(location.origin)
  ? ""
  : ` --server ${location.origin}${location.pathname.replace(/\/[^/]*$/, "")}`;
