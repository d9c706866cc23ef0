"""The options of a server in visualprof.toml."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from visualprof.cli import admin, serve
from visualprof.cli._config import with_file
from visualprof.errors import BadParameter, NotFound

WHOLE = """
logdir = ["/data/runs", "/data/more"]
accounts = true
port = 9000
trust-proxy = ["10.0.0.0/8", "127.0.0.1"]
registration = "open"
lease = 20
smtp = "smtps://robot@mail.example.org"
open = false
"""


def parser() -> argparse.ArgumentParser:
    argument_parser = argparse.ArgumentParser()
    serve.add_arguments(argument_parser)
    return argument_parser


def read(tmp_path: Path, text: str, *words: str) -> argparse.Namespace:
    file = tmp_path / "visualprof.toml"
    file.write_text(text)
    file.chmod(0o600)
    return with_file(str(file), parser(), words)


def test_a_configuration_file_accepts_all_options(tmp_path: Path) -> None:
    same = ["--logdir", "/data/runs", "/data/more", "--accounts", "--port", "9000", "--trust-proxy", "10.0.0.0/8"]
    same += ["--trust-proxy", "127.0.0.1", "--registration", "open", "--lease", "20"]
    same += ["--smtp", "smtps://robot@mail.example.org"]
    assert vars(read(tmp_path, WHOLE)) == vars(parser().parse_args(same))


def test_the_command_line_wins(tmp_path: Path) -> None:
    words = ["--port", "0", "--trust-proxy", "::1", "--registration", "invitation", "--logdir", "here"]
    args = read(tmp_path, WHOLE, *words)
    assert (args.port, args.proxies, args.registration, args.logdir) == (0, ["::1/128"], "invitation", ["here"])
    assert (args.accounts, args.lease_s) == (True, 20), "what it does not say is the file's"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("color = 1", "3: color: no option has this name"),
        ("help = true", "3: help: no option has this name"),
        ("paths = ['x']", "3: paths: no option has this name"),
        ("por = 1", "3: por: no option has this name"),
        ("port = '80'", "3: port: a number is wanted"),
        ("port = 'x'", "3: port: "),
        ("port = 1.5", "3: port: "),
        ("port = [1, 2]", "3: port: one value, no list"),
        ("port = true", "3: port: "),
        ("host = 5", "3: host: a text is wanted"),
        ("host = false", "3: host: "),
        ("accounts = 'yes'", "3: accounts: "),
        ("accounts = 1", "3: accounts: "),
        ("trust-proxy = ['nowhere']", "3: trust-proxy: a network is like"),
        ("trust-proxy = []", "3: trust-proxy: a text, a number or a list"),
        ("base-url = 'dash'", "3: base-url: an address is like"),
        ("smtp = 'smtp://user:secret@mail'", "3: smtp: "),
        ("[smtp]\nhost = 'x'", "3: smtp: a text, a number or a list"),
        ("since = 2020-01-01", "3: since: a text, a number or a list"),
        ("port = ", ": Invalid value"),
    ],
)
def test_an_error_is_reported_with_its_line(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(BadParameter) as refused:
        read(tmp_path, f"# a server\naccounts = true\n{line}\n".replace("accounts = true\naccounts", "\naccounts"))
    assert f"visualprof.toml:{said}" in refused.value.error.replace("toml: Invalid", "toml:: Invalid")


def test_a_secret_is_read_by_its_owner_alone_and_the_environment_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read(tmp_path, "smtp-password = 'of the file'").smtp_password == "of the file"
    monkeypatch.setenv("VISUALPROF_SMTP_PASSWORD", "of the environment")
    assert read(tmp_path, "smtp-password = 'of the file'").smtp_password == "of the environment"
    database = "postgresql+psycopg://visualprof:secret@db/visualprof"
    assert read(tmp_path, f"database = '{database}'").database == database
    for line in ("smtp-password = 'x'", f"database = '{database}'"):
        read(tmp_path, line)
        (tmp_path / "visualprof.toml").chmod(0o640)
        with pytest.raises(BadParameter, match="others may read it"):
            with_file(str(tmp_path / "visualprof.toml"), parser(), [])
    monkeypatch.setenv("VISUALPROF_DATABASE", "postgresql+psycopg://elsewhere/x")
    assert read(tmp_path, f"database = '{database}'").database.endswith("elsewhere/x")
    with pytest.raises(SystemExit):
        parser().parse_args(["--smtp-password", "seen by ps"])


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="No such file"):
        with_file(str(tmp_path / "none.toml"), parser(), [])


def test_administration_finds_the_folder_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "visualprof.toml").write_text(WHOLE)
    argument_parser = argparse.ArgumentParser()
    admin.add_arguments(argument_parser)
    args = with_file(str(tmp_path / "visualprof.toml"), argument_parser, ["list"])
    assert admin._folder(args) == Path("/data/runs/.visualprof")
