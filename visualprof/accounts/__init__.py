"""Accounts of a team's server: users, sessions and tokens, projects, and the audit log.

A server on a laptop has no accounts: all its users are `SINGLE_USER`.
"""
