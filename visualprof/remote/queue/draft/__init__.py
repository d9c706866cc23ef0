"""Drafts of jobs: user input becomes a job request, and a job becomes a draft again."""
