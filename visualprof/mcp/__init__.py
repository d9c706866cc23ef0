"""Answer questions about profiles over the Model Context Protocol (MCP), for language models and their users.

Only `protocol` and `transports` import the `mcp` package.
"""
