"""Run by alembic: applies the migrations on the connection that ``api.store.database`` hands over."""

from alembic import context

from api.store.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, transactional_ddl=True, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
