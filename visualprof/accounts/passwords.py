"""Passwords: what is kept of them, which ones are refused, and that guessing is slow."""

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
MAX_CONCURRENT = 2 if (os.cpu_count() or 1) > 4 else 1  # each takes a core for a fifth of a second, and 64 MB
MAX_WAITING = 6  # each holds a thread of the server
_PATIENCE_S = 10


class Passwords:
    """Hashes by Argon2, a few at once, for which few wait: a storm of them leaves the server to others.

    Raises: VisualprofError: the package is not installed.
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
        """What is kept of a password.

        Raises: Crowded: many others log in.
        """
        with self._turn():
            return self._argon2.hash(password)

    def verify(self, password: str, kept: str | None) -> bool:
        """Is it the password? It takes as long where nothing is kept, as for somebody who is not known.

        Raises: Crowded.
        """
        with self._turn():
            return self._argon2.verify(password[:MAX_LENGTH], kept or self._nobodys) and kept is not None

    def check_capacity(self) -> None:
        """Before anything else is done for somebody who would have to wait for long.

        Raises: Crowded.
        """
        with self._place():
            pass

    @cached_property
    def _nobodys(self) -> str:
        return self._argon2.hash(msg("accounts.nobodys_password", "nobody's password"))

    @contextmanager
    def _place(self) -> Generator[None]:
        """A place among those that hash or wait for it."""
        if not self._places.acquire(blocking=False):
            raise _crowded()
        try:
            yield
        finally:
            self._places.release()

    @contextmanager
    def _turn(self) -> Generator[None]:
        """A place among those that hash."""
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
    """Has Argon2, which begins four threads, take one core: the others are for who is logged in."""
    if not hasattr(os, "sched_setaffinity"):  # nothing but Linux has that for a thread
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
    """Raises: BadParameter: it is short, endless, or the address itself."""
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
