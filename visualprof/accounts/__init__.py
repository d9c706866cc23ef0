"""Accounts of a team's server: people, their sessions and tokens, projects, and what was done by whom.

A server on a laptop has none of this: whoever reaches it is `EVERYBODY`.
"""
