"""Server side of remote runs: jobs, tasks and agents in a database, files in a folder or bucket. Knows no web server.

store: tables, rows as values, files.
check: validation of files and jobs.
draft: jobs from user input.
tasks: the life cycle of jobs and tasks.
job_services: all services of an open database.
opening, service: open the database on first use.
uploads: incoming files.
model_registration: uploaded files as versions of registered models.
"""
