"""The stored queries asked of other tools: tables made with plain Python, and each tool's answers from them."""
