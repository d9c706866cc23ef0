/** How a command names this server; the usual address is its own default. */
export const serverOption = /^http:\/\/(127\.0\.0\.1|localhost):8040$/.test(location.origin)
  ? ""
  : ` --server ${location.origin}${location.pathname.replace(/\/[^/]*$/, "")}`;
