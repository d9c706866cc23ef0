"""Notifications of users: in the web UI, by e-mail, and by webhook."""
