"""The tables. Statements over them run on SQLite and PostgreSQL.

`owner` is a user, empty on a server without accounts. Times are ns since 1970, lists and objects are JSON as text.
A new database gets these; a change of a table needs a file in `migrations/versions` for older ones.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    false,
    func,
    text,
)

metadata = MetaData()


def _owner() -> Column[str | None]:
    return Column("owner", String(64), nullable=True)


# One row a name: grows with every change of what it names, so that pages ask for nothing that they have.
# `runs` counts the rows of that table, `shared` what changes who may see what was there before.
# `told` follows `jobs`: up to where people have been told of what ended.
REVISIONS = ("jobs", "agents", "runs", "shared", "told")
revisions = Table(
    "revisions",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("revision", BigInteger, nullable=False),
)

agents = Table(
    "agents",
    metadata,
    Column("id", String(32), primary_key=True),
    _owner(),
    Column("name", String(200), nullable=False),
    Column("token_sha256", String(64), nullable=False, unique=True),
    Column("public", Boolean, nullable=False),
    Column("local", Boolean, nullable=False),
    Column("address", String(200), nullable=False),
    Column("standing", String(16), nullable=False, server_default="works"),  # `records.Standing`
    Column("capabilities", Text, nullable=False),
    Column("registered_ns", BigInteger, nullable=False),
    Column("seen_ns", BigInteger, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", String(32), primary_key=True),
    _owner(),
    Column("key", String(200), nullable=False),
    Column("digest", String(64), nullable=False),  # of the request: the same key must bring the same
    Column("request", Text, nullable=False),
    Column("model_blob", String(64), nullable=False),
    Column("folder", String(300), nullable=False),  # of its results, below the log directory
    Column("retries", Integer, nullable=False),
    Column("timeout_ns", BigInteger, nullable=False),
    Column("submitted_ns", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False, index=True),
    Column("kept", Boolean, nullable=False, server_default=false()),  # whatever the rules of `retention` say
)
OF_OWNER = func.coalesce(jobs.c.owner, text("''"))  # in these words alone the index is used
Index("jobs_by_key", OF_OWNER, jobs.c.key, unique=True)

tasks = Table(
    "tasks",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("id", String(40), nullable=False, unique=True),
    Column("job", String(32), ForeignKey("jobs.id"), nullable=False, index=True),
    _owner(),
    # what is wanted
    Column("spec_id", String(48), nullable=False),
    Column("spec", Text, nullable=False),
    Column("backend", String(64), nullable=False),
    Column("version", String(64), nullable=False),
    Column("wanted_agent", String(32), nullable=False),
    Column("platform", String(16), nullable=False),
    Column("device", String(32), nullable=False),
    # where it is. tries: leases since it was submitted or retried; attempt: all leases
    Column("state", String(16), nullable=False),
    Column("phase", String(16), nullable=True),
    Column("progress", Float, nullable=False, default=0.0),
    Column("attempt", Integer, nullable=False, default=0),
    Column("tries", Integer, nullable=False, default=0),
    Column("updated_ns", BigInteger, nullable=False),
    # who has it
    Column("agent", String(32), nullable=True, index=True),
    Column("on_device", String(32), nullable=True),
    Column("on_version", String(64), nullable=True),
    Column("lease", String(64), nullable=True),
    Column("lease_until_ns", BigInteger, nullable=True),
    Column("started_ns", BigInteger, nullable=True),
    Column("deadline_ns", BigInteger, nullable=True),
    Column("cancel", Boolean, nullable=False, default=False),
    # how it ended
    Column("reason", String(32), nullable=True),
    Column("error", Text, nullable=True),
    Column("hint", Text, nullable=True),
    Column("warnings", Text, nullable=False, default="[]"),
    Column("run", String(400), nullable=True),
    Column("log_bytes", BigInteger, nullable=False, default=0),
    Column("log_cut", BigInteger, nullable=False, default=0),
    Column("priority", Integer, nullable=False, server_default="1"),  # place in `protocol.PRIORITIES`
)
Index("tasks_by_turn", tasks.c.state, tasks.c.priority, tasks.c.owner, tasks.c.seq)
Index("tasks_by_start", tasks.c.owner, tasks.c.started_ns)

points = Table(
    "points",
    metadata,
    Column("task", String(40), ForeignKey("tasks.id"), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("batch", BigInteger, primary_key=True),
    _owner(),
    Column("point", Text, nullable=False),
)

# Files of a result that is arriving; gone once it is published.
artefacts = Table(
    "artefacts",
    metadata,
    Column("task", String(40), ForeignKey("tasks.id"), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("name", String(300), primary_key=True),
    _owner(),
    Column("key", String(200), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
)

blobs = Table(
    "blobs",
    metadata,
    Column("sha256", String(64), primary_key=True),
    _owner(),
    Column("name", String(300), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("inspected", Text, nullable=True),
    Column("kept_ns", BigInteger, nullable=False),
)

# Files that browsers and commands send to a bucket; gone once they are blobs.
uploads = Table(
    "uploads",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("owner", String(64), nullable=True, index=True),
    Column("name", String(300), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),  # "" where whoever sends it does not know
    Column("part", Boolean, nullable=False),  # it has weights of a model
    Column("begun_ns", BigInteger, nullable=False),
)

# Who may see a run: that of the folder with the longest matching path, or else everybody with an account.
runs = Table(
    "runs",
    metadata,
    Column("folder", String(400), primary_key=True),  # of a run or of several, as the ids of runs begin
    _owner(),
    Column("visibility", String(16), nullable=False),  # private, project, public
    Column("project", String(32), nullable=True, index=True),
    Column("revision", BigInteger, nullable=False, server_default="0", index=True),  # that of `runs` with which it came
)

# Who uploaded a file: knowing its sha256 opens nothing.
holders = Table(
    "holders",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("owner", String(64), primary_key=True),
    Column("name", String(300), nullable=False),
)

users = Table(
    "users",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("email", String(254), nullable=False, unique=True),  # in lower case
    Column("name", String(200), nullable=False),
    Column("password", String(300), nullable=True),  # its hash; none until one is set
    Column("role", String(16), nullable=False),  # viewer, member, admin
    Column("disabled", Boolean, nullable=False, default=False),
    Column("created_ns", BigInteger, nullable=False),
    Column("seen_ns", BigInteger, nullable=True),
    Column("subject", String(600), nullable=True),  # how an issuer calls them, after its own name
)
Index("users_by_subject", users.c.subject, unique=True)

sessions = Table(
    "sessions",
    metadata,
    Column("sha256", String(64), primary_key=True),  # of the cookie
    Column("id", String(32), nullable=False, unique=True),
    Column("user", String(32), ForeignKey("users.id"), nullable=False, index=True),
    Column("begun_ns", BigInteger, nullable=False),
    Column("seen_ns", BigInteger, nullable=False),
    Column("address", String(200), nullable=False),
    Column("browser", String(300), nullable=False),
    Column("issued", String(64), nullable=True),  # sha256 of how the issuer calls it; empty where it began here
)

# For commands and CI. role: the most that it may do, whatever its user may.
api_tokens = Table(
    "api_tokens",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("id", String(32), nullable=False, unique=True),
    Column("user", String(32), ForeignKey("users.id"), nullable=False, index=True),
    Column("name", String(200), nullable=False),
    Column("role", String(16), nullable=False),
    Column("created_ns", BigInteger, nullable=False),
    Column("expires_ns", BigInteger, nullable=False),
    Column("used_ns", BigInteger, nullable=True),
)

# For whoever has the address: one run or report, named as in `runs`, for a time.
links = Table(
    "links",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("id", String(32), nullable=False, unique=True),
    Column("run", String(400), nullable=False, index=True),
    Column("user", String(32), ForeignKey("users.id"), nullable=False),  # who made it
    Column("created_ns", BigInteger, nullable=False),
    Column("expires_ns", BigInteger, nullable=False),
    Column("used_ns", BigInteger, nullable=True),
)

# How much each user may have; "" is everybody without a row. Empty is without a bound.
quotas = Table(
    "quotas",
    metadata,
    Column("user", String(32), primary_key=True),
    Column("jobs_waiting", Integer, nullable=True),
    Column("jobs_running", Integer, nullable=True),
    Column("upload_bytes", BigInteger, nullable=True),
    Column("device_ns", BigInteger, nullable=True),
)

# After how many days what is removed; empty is never. What has no row here follows `retention.USUAL`.
retention = Table(
    "retention",
    metadata,
    Column("kind", String(16), primary_key=True),  # `records.Removable`
    Column("project", String(32), primary_key=True),  # of jobs that are shared with it; "" for all others
    Column("days", Integer, nullable=True),
)

# When which attempt had a device, of somebody's job: it stays when that is removed.
device_use = Table(
    "device_use",
    metadata,
    Column("task", String(40), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("owner", String(64), nullable=False, index=True),
    Column("begun_ns", BigInteger, nullable=False),
    Column("ended_ns", BigInteger, nullable=True),
)

# Texts that do one thing once: register, set a new password, add a machine.
codes = Table(
    "codes",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("purpose", String(16), nullable=False),
    Column("email", String(254), nullable=False),  # of whom it is for
    Column("role", String(16), nullable=False),
    Column("made_by", String(32), nullable=True),
    Column("expires_ns", BigInteger, nullable=False),
)

projects = Table(
    "projects",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", String(200), nullable=False),  # one of each among those that somebody sees
    Column("created_ns", BigInteger, nullable=False),
)

members = Table(
    "members",
    metadata,
    Column("project", String(32), ForeignKey("projects.id"), primary_key=True),
    Column("user", String(32), ForeignKey("users.id"), primary_key=True, index=True),
)

# For whom a private machine works beside its owner: a user, or the members of a project.
grants = Table(
    "grants",
    metadata,
    Column("agent", String(32), primary_key=True),
    Column("holder", String(32), primary_key=True, index=True),
)

# When a machine works for one user alone, or for nobody; those of one machine do not overlap.
bookings = Table(
    "bookings",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("agent", String(32), nullable=False, index=True),
    Column("user", String(32), nullable=True),  # empty: maintenance
    Column("from_ns", BigInteger, nullable=False),
    Column("until_ns", BigInteger, nullable=False),
)

# Failed attempts to log in, until they are too old to count.
failures = Table(
    "failures",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("key", String(64), nullable=False, index=True),
    Column("at_ns", BigInteger, nullable=False),
)

# What somebody is told. at_ns: when it happened, so that the same is told once.
notices = Table(
    "notices",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("user", String(32), ForeignKey("users.id"), nullable=False, index=True),
    Column("kind", String(32), nullable=False),  # `accounts.notices.rows.Kind`
    Column("subject", String(64), nullable=False),  # id of the job or machine
    Column("name", String(300), nullable=False),
    Column("at_ns", BigInteger, nullable=False),
    Column("read", Boolean, nullable=False, default=False),
    Column("slower", Text, nullable=True),  # of a regression: `accounts.notices.kinds.Slower`
)
Index("notices_once", notices.c.subject, notices.c.kind, notices.c.user, notices.c.at_ns, unique=True)

# Notices that are still to be sent. due_ns: not before; who sends one moves it ahead first, so nobody else does.
deliveries = Table(
    "deliveries",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("notice", Integer, ForeignKey("notices.seq"), nullable=False, index=True),
    Column("user", String(32), nullable=False, index=True),
    Column("channel", String(16), nullable=False),  # mail, webhook
    Column("tries", Integer, nullable=False),
    Column("due_ns", BigInteger, nullable=False, index=True),
)

# How somebody wants to be told. trouble: why the last one could not be sent.
contacts = Table(
    "contacts",
    metadata,
    Column("user", String(32), ForeignKey("users.id"), primary_key=True),
    Column("kinds", Text, nullable=False),  # that are sent; the page shows all
    Column("known", Text, nullable=True),  # those that there were to choose from: later ones are sent, too
    Column("language", String(8), nullable=False),
    Column("mail", Boolean, nullable=False),
    Column("webhook", String(1000), nullable=False),
    Column("secret", String(100), nullable=False),  # signs what goes to the webhook
    Column("trouble", String(400), nullable=False),
    Column("trouble_ns", BigInteger, nullable=True),
)

# Who did what: rows are added, never changed.
audit = Table(
    "audit",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("at_ns", BigInteger, nullable=False),
    Column("user", String(32), nullable=True),
    Column("email", String(254), nullable=False),
    Column("action", String(40), nullable=False),
    Column("subject", String(400), nullable=False),
    Column("address", String(200), nullable=False),
)
