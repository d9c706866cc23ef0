"""The tables. Statements over them run on SQLite and PostgreSQL.

`owner` is a user, empty on a server without accounts. Times are ns since 1970; lists and objects are JSON as text. A
new
database gets these tables; older ones need a file in `migrations/versions` for each change.
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


# One row per name: the revision increases with every change, so that pages request only what changed.
# `runs` counts rows of that table, `shared` changes of who may see existing runs.
# `told` follows `jobs`: users were notified of all jobs that ended up to this revision.
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
    Column("digest", String(64), nullable=False),  # of the request; the same key must come with the same request
    Column("request", Text, nullable=False),
    Column("model_blob", String(64), nullable=False),
    Column("folder", String(300), nullable=False),  # of its results, relative to the log directory
    Column("retries", Integer, nullable=False),
    Column("timeout_ns", BigInteger, nullable=False),
    Column("submitted_ns", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False, index=True),
    Column("kept", Boolean, nullable=False, server_default=false()),  # regardless of the rules of `retention`
)
JOB_OWNER = func.coalesce(jobs.c.owner, text("''"))  # the index is used only for this exact expression
Index("jobs_by_key", JOB_OWNER, jobs.c.key, unique=True)

tasks = Table(
    "tasks",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("id", String(40), nullable=False, unique=True),
    Column("job", String(32), ForeignKey("jobs.id"), nullable=False, index=True),
    _owner(),
    # the spec
    Column("spec_id", String(48), nullable=False),
    Column("spec", Text, nullable=False),
    Column("backend", String(64), nullable=False),
    Column("version", String(64), nullable=False),
    Column("wanted_agent", String(32), nullable=False),
    Column("platform", String(16), nullable=False),
    Column("device", String(32), nullable=False),
    # the state. tries: leases since it was submitted or retried; attempt: all leases
    Column("state", String(16), nullable=False),
    Column("phase", String(16), nullable=True),
    Column("progress", Float, nullable=False, default=0.0),
    Column("attempt", Integer, nullable=False, default=0),
    Column("tries", Integer, nullable=False, default=0),
    Column("updated_ns", BigInteger, nullable=False),
    # the lease
    Column("agent", String(32), nullable=True, index=True),
    Column("on_device", String(32), nullable=True),
    Column("on_version", String(64), nullable=True),
    Column("lease", String(64), nullable=True),
    Column("lease_until_ns", BigInteger, nullable=True),
    Column("started_ns", BigInteger, nullable=True),
    Column("deadline_ns", BigInteger, nullable=True),
    Column("cancel", Boolean, nullable=False, default=False),
    # the outcome
    Column("reason", String(32), nullable=True),
    Column("error", Text, nullable=True),
    Column("hint", Text, nullable=True),
    Column("warnings", Text, nullable=False, default="[]"),
    Column("run", String(400), nullable=True),
    Column("log_bytes", BigInteger, nullable=False, default=0),
    Column("log_cut", BigInteger, nullable=False, default=0),
    Column("priority", Integer, nullable=False, server_default="1"),  # index in `protocol.PRIORITIES`
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

# Files of a result during its upload, and files of runs in the bucket.
artifacts = Table(
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

# Files that browsers and commands send to a bucket, until they become blobs.
uploads = Table(
    "uploads",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("owner", String(64), nullable=True, index=True),
    Column("name", String(300), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),  # "" if the sender does not know it
    Column("part", Boolean, nullable=False),  # whether it contains weights of a model
    Column("begun_ns", BigInteger, nullable=False),
)

# Who may see a run: the row of the longest matching folder applies; without a row, all users may.
runs = Table(
    "runs",
    metadata,
    Column("folder", String(400), primary_key=True),  # a run or a prefix of several runs
    _owner(),
    Column("visibility", String(16), nullable=False),  # private, project, public
    Column("project", String(32), nullable=True, index=True),
    # The revision of `runs` at the last change.
    Column("revision", BigInteger, nullable=False, server_default="0", index=True),
)

# Who uploaded a file. Knowing a file's sha256 grants no access.
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
    Column("password", String(300), nullable=True),  # its hash; empty until a password is set
    Column("role", String(16), nullable=False),  # viewer, member, admin
    Column("disabled", Boolean, nullable=False, default=False),
    Column("created_ns", BigInteger, nullable=False),
    Column("seen_ns", BigInteger, nullable=True),
    Column("subject", String(600), nullable=True),  # URL of the issuer and its id of the user
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
    Column("issued", String(64), nullable=True),  # sha256 of the issuer's session id; empty for a local log-in
)

# For commands and CI. role: upper bound of its permissions.
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

# Grant visitors with the URL access to one run or report, named as in `runs`, for a limited time.
links = Table(
    "links",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("id", String(32), nullable=False, unique=True),
    Column("run", String(400), nullable=False, index=True),
    Column("user", String(32), ForeignKey("users.id"), nullable=False),  # its creator
    Column("created_ns", BigInteger, nullable=False),
    Column("expires_ns", BigInteger, nullable=False),
    Column("used_ns", BigInteger, nullable=True),
)

# Quotas of users; "" applies to users without a row. Empty is unlimited.
quotas = Table(
    "quotas",
    metadata,
    Column("user", String(32), primary_key=True),
    Column("jobs_waiting", Integer, nullable=True),
    Column("jobs_running", Integer, nullable=True),
    Column("upload_bytes", BigInteger, nullable=True),
    Column("device_ns", BigInteger, nullable=True),
)

# After how many days data is removed; empty is never. Kinds without a row follow `retention.DEFAULT_DAYS`.
retention = Table(
    "retention",
    metadata,
    Column("kind", String(16), primary_key=True),  # `records.RetentionKind`
    Column("project", String(32), primary_key=True),  # for jobs that are shared with this project; "" for all others
    Column("days", Integer, nullable=True),
)

# When an attempt occupied a device. Rows stay when the job is deleted.
device_use = Table(
    "device_use",
    metadata,
    Column("task", String(40), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("owner", String(64), nullable=False, index=True),
    Column("begun_ns", BigInteger, nullable=False),
    Column("ended_ns", BigInteger, nullable=True),
)

# Codes that can be used once: to register, to set a new password, to add a machine.
codes = Table(
    "codes",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("purpose", String(16), nullable=False),
    Column("email", String(254), nullable=False),  # of the addressee
    Column("role", String(16), nullable=False),
    Column("made_by", String(32), nullable=True),
    Column("expires_ns", BigInteger, nullable=False),
)

projects = Table(
    "projects",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", String(200), nullable=False),  # unique among the projects that a user may see
    Column("created_ns", BigInteger, nullable=False),
)

members = Table(
    "members",
    metadata,
    Column("project", String(32), ForeignKey("projects.id"), primary_key=True),
    Column("user", String(32), ForeignKey("users.id"), primary_key=True, index=True),
)

# For whom a private machine works, in addition to its owner: a user, or the members of a project.
grants = Table(
    "grants",
    metadata,
    Column("agent", String(32), primary_key=True),
    Column("holder", String(32), primary_key=True, index=True),
)

# When a machine works for one user only, or is under maintenance; bookings of a machine do not overlap.
bookings = Table(
    "bookings",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("agent", String(32), nullable=False, index=True),
    Column("user", String(32), nullable=True),  # empty: maintenance
    Column("from_ns", BigInteger, nullable=False),
    Column("until_ns", BigInteger, nullable=False),
)

# Failed log-in attempts, until they are too old to count.
failures = Table(
    "failures",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("key", String(64), nullable=False, index=True),
    Column("at_ns", BigInteger, nullable=False),
)

# Notifications of users. at_ns: when the event happened, so that a user is notified of it once.
notices = Table(
    "notices",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("user", String(32), ForeignKey("users.id"), nullable=False, index=True),
    Column("kind", String(32), nullable=False),  # `accounts.notifications.kinds.Kind`
    Column("subject", String(64), nullable=False),  # id of the job or machine
    Column("name", String(300), nullable=False),
    Column("at_ns", BigInteger, nullable=False),
    Column("read", Boolean, nullable=False, default=False),
    Column("slower", Text, nullable=True),  # of a regression: `accounts.notifications.kinds.Regression`
)
Index("notices_once", notices.c.subject, notices.c.kind, notices.c.user, notices.c.at_ns, unique=True)

# Notifications to send. due_ns: earliest time; a sender increases it before it sends, so that no other server does.
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

# How a user wants to be notified. trouble: why the last delivery failed.
contacts = Table(
    "contacts",
    metadata,
    Column("user", String(32), ForeignKey("users.id"), primary_key=True),
    Column("kinds", Text, nullable=False),  # kinds that are sent; the web UI shows all
    Column("known", Text, nullable=True),  # kinds that existed when the user chose; later kinds are also sent
    Column("language", String(8), nullable=False),
    Column("mail", Boolean, nullable=False),
    Column("webhook", String(1000), nullable=False),
    Column("secret", String(100), nullable=False),  # signs requests to the webhook
    Column("trouble", String(400), nullable=False),
    Column("trouble_ns", BigInteger, nullable=True),
)

# Audit events: rows are added, never changed.
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
