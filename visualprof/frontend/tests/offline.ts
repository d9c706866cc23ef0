// Requests fail unless a test replaces fetch.
globalThis.fetch = () => Promise.reject(new Error("there is no server in a test"));
