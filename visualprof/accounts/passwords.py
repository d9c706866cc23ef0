"""Passwords: hashing, rejecting weak ones, and limiting concurrent hashing."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from visualprof.errors import BadParameter, VisualprofError
from visualprof.messages import msg
from visualprof.remote.queue.errors import ServerBusy

if TYPE_CHECKING:
    from pwdlib import PasswordHash

MIN_LENGTH, MAX_LENGTH = 10, 1000
MAX_CONCURRENT = 2 if (os.cpu_count() or 1) > 4 else 1  # each needs a core for 0.2 s, and 64 MB
MAX_WAITING = 6  # each occupies a server thread
_PATIENCE_S = 10


class Passwords:
    """Argon2 hashes. The numbers of running and waiting ones are limited, so that many log-ins do not block the server.

    Raises:
        VisualprofError: The package is not installed.
    """

    def __init__(self) -> None:
        self._room = threading.BoundedSemaphore(MAX_CONCURRENT)
        self._places = threading.BoundedSemaphore(MAX_CONCURRENT + MAX_WAITING)
        try:
            from pwdlib import PasswordHash
        except ImportError as error:
            raise VisualprofError(
                msg("accounts.accounts_need_pwdlib", "accounts need pwdlib"),
                msg("accounts.pip_install_visualprof_team", "pip install 'visualprof[team]'"),
            ) from error
        self._argon2: PasswordHash = PasswordHash.recommended()

    def hash(self, password: str) -> str:
        """Return the hash of a password.

        Raises:
            ServerBusy: Too many users log in.
        """
        with self._turn():
            return self._argon2.hash(password)

    def verify(self, password: str, stored_hash: str | None) -> bool:
        """Return whether a password matches a hash. The time is the same without a hash, so it reveals no account.

        Raises:
            ServerBusy: Too many users log in.
        """
        with self._turn():
            return (
                self._argon2.verify(password[:MAX_LENGTH], stored_hash or self._dummy_hash) and stored_hash is not None
            )

    def check_capacity(self) -> None:
        """Check that a log-in would not have to wait for long. Call this before any other work for the log-in.

        Raises:
            ServerBusy: Too many users log in.
        """
        with self._place():
            pass

    @cached_property
    def _dummy_hash(self) -> str:
        return self._argon2.hash("password of no user")

    @contextmanager
    def _place(self) -> Generator[None]:
        """Occupy one of the places for log-ins that are hashing or waiting."""
        if not self._places.acquire(blocking=False):
            raise _crowded()
        try:
            yield
        finally:
            self._places.release()

    @contextmanager
    def _turn(self) -> Generator[None]:
        """Wait until few enough other log-ins are hashing."""
        with self._place():
            if not self._room.acquire(timeout=_PATIENCE_S):
                raise _crowded()
            try:
                with _one_core():
                    yield
            finally:
                self._room.release()


@contextmanager
def _one_core() -> Generator[None]:
    """Restrict Argon2, which starts four threads, to one core. The other cores stay free for logged-in users."""
    if not hasattr(os, "sched_setaffinity"):  # only Linux sets the affinity of threads
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {random.choice(sorted(cores))})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _crowded() -> ServerBusy:
    return ServerBusy(
        msg("accounts.many_people_log_moment", "many people log in at this moment"),
        msg("accounts.try_again_few_seconds", "try again in a few seconds"),
    )


def check_strength(password: str, email: str) -> None:
    """Reject weak passwords.

    Raises:
        BadParameter: The password is the e-mail address, or its length is out of range.
    """
    if not MIN_LENGTH <= len(password) <= MAX_LENGTH:
        raise BadParameter(
            msg("accounts.password_characters", f"password: {MIN_LENGTH} to {MAX_LENGTH} characters"),
            msg("accounts.few_words_make_good", "a few words make a good one"),
        )
    if password.lower() in (email, email.partition("@")[0]) or len(set(password)) < 4:
        raise BadParameter(
            msg("accounts.password_too_easy_guess", "password: too easy to guess"),
            msg("accounts.few_words_make_good", "a few words make a good one"),
        )
