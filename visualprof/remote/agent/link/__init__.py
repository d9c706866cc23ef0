"""Communication with the server."""
