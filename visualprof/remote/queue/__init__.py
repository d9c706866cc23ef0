"""The queue of record: jobs, tasks, agents and files, in a database and a folder. Knows no web server.

store: tables, rows as values, files. check: is a file or a job one that can be run? draft: a job of what is typed.
tasks: the life of jobs and tasks. whole: all of it. opening, service: opens it when it is first needed. uploads: files
that come in.
"""
