"""The routes of the HTTP API, with one module per resource."""
