"""All services of accounts over one database."""

from __future__ import annotations

from visualprof.accounts.audit import list_events
from visualprof.accounts.links import Links
from visualprof.accounts.machines import MachineAccess
from visualprof.accounts.notifications.contacts import Contacts
from visualprof.accounts.notifications.store import Notifications
from visualprof.accounts.passwords import Passwords
from visualprof.accounts.principal import Registration
from visualprof.accounts.projects import Projects
from visualprof.accounts.quotas import UserQuotas
from visualprof.accounts.records import AuditEvent
from visualprof.accounts.sessions import MAX_AGE_S, MAX_IDLE_S, Sessions
from visualprof.accounts.sharing import Sharing
from visualprof.accounts.users import Users
from visualprof.remote.queue.store.database import Database


class Accounts:
    """The accounts of a server.

    Args:
        database: The database.
        registration: Whether users create their accounts themselves.
        idle_s: Maximum idle time of a session.
        whole_s: Maximum age of a session.

    Raises:
        VisualprofError: A package is missing.
    """

    def __init__(
        self,
        database: Database,
        registration: Registration = "invitation",
        idle_s: float = MAX_IDLE_S,
        whole_s: float = MAX_AGE_S,
    ) -> None:
        self.database = database
        self.registration: Registration = registration
        self.users = Users(database, Passwords())
        self.sessions = Sessions(database, idle_s, whole_s)
        self.projects = Projects(database)
        self.sharing = Sharing(database)
        self.notifications = Notifications(database)
        self.contacts = Contacts(database)
        self.quotas = UserQuotas(database)
        self.links = Links(database, self.sharing)
        self.machines = MachineAccess(database)

    def audit_events(self, before: int | None, limit: int) -> list[AuditEvent]:
        """Return the latest audit events, newest first.

        Args:
            before: Only events with a lower number.
            limit: Maximum number of events.
        """
        return list_events(self.database, before, limit)
