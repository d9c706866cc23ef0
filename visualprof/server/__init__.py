"""The HTTP server: `app.create_app` makes the application, `serve.Server` runs it."""
