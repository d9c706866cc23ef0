"""The way to the server and back."""
