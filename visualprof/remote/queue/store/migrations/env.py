"""Run migrations; alembic executes this inside the transaction of `database.migrate`."""

from __future__ import annotations

from alembic import context

from visualprof.remote.queue.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
