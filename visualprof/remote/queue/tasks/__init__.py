"""The life cycle of jobs and tasks."""
