// Nothing answers in a test unless the test itself does.
globalThis.fetch = () => Promise.reject(new Error("there is no server in a test"));
