"""Log-in at an OpenID Connect issuer: the URL for the browser, and the identity that comes back. Needs no database.

Authorization code flow with PKCE. All secrets of a log-in are derived from one random text in the browser's cookie:
nothing is stored here, and the issuer's answer is usable only in the browser that started the log-in.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import re
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, cast
from urllib.parse import urlencode, urlsplit

from visualprof.errors import BadParameter, VisualprofError
from visualprof.messages import msg
from visualprof.remote.queue.errors import Unauthenticated

TIMEOUT_S = 10
MAX_CLOCK_SKEW_S = 60  # allowed difference between two clocks
METADATA_CACHE_S = 600  # how long the issuer's metadata is cached
_MOST = 1 << 20  # maximum size of an answer
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
MAX_LOGOUT_AGE_S = 86400  # maximum lifetime of a logout token
# Only asymmetric signatures: no shared secrets, and never "none".
_SIGNED_BY = [f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)]
_AGAIN = msg("accounts.log_again", "log in again")


class IssuerError(VisualprofError, status=502, docs_page="single-sign-on"):
    """An issuer that does not answer, or not according to OpenID Connect."""


@dataclass(frozen=True)
class Identity:
    """A user whom an issuer identified.

    Attributes:
        subject: The issuer's URL and its permanent id of the user.
        email: E-mail address that the issuer has verified.
        name: Name of the user.
        admin: Whether the user is in the group of administrators; None without such a group.
        token: The ID token, needed to log the user out at the issuer.
        session: The issuer's session id, "" if unknown.
    """

    subject: str
    email: str
    name: str
    admin: bool | None
    token: str = ""
    session: str = ""


@dataclass(frozen=True)
class LogoutOrder:
    """An issuer's order to end sessions.

    Attributes:
        subject: As in `Identity`; "" is any user of the session.
        session: The issuer's session id; "" is all sessions of the user.
        name: Id of the order, which is valid once.
        until_ns: When the order expires.
    """

    subject: str
    session: str
    name: str
    until_ns: int


class Issuer:
    """An issuer, and this server as its client.

    Args:
        url: URL of the issuer, exactly as it calls itself.
        client: Id of this server at the issuer.
        secret: Secret of this server at the issuer; "" is a public client.
        back: URL to which the issuer redirects browsers.
        admin_group: Value of the claim `groups` for administrators; "" leaves roles to this server.

    Raises:
        VisualprofError: A package is missing.
    """

    def __init__(self, url: str, client: str, secret: str, back: str, admin_group: str = "") -> None:
        _authlib("oidc.core")
        self.url, self._client, self._secret, self._back = url, client, secret, back
        self._admin_group = admin_group
        self._metadata: tuple[float, dict[str, Any]] = (float("-inf"), {})

    def start_login(self) -> tuple[str, str]:
        """Return the text for the browser's cookie, and the URL to which the browser is redirected.

        Raises:
            IssuerError: The issuer does not answer correctly.
        """
        cookie_text = secrets.token_urlsafe(32)
        challenge = _authlib("oauth2.rfc7636").create_s256_code_challenge(_derive(cookie_text, "verifier"))
        address = _authlib("oauth2.rfc6749.parameters").prepare_grant_uri(
            self._endpoint("authorization"),
            self._client,
            "code",
            self._back,
            ["openid", "email", "profile"],
            _derive(cookie_text, "state"),
            nonce=_derive(cookie_text, "nonce"),
            code_challenge=challenge,
            code_challenge_method="S256",
        )
        return cookie_text, address

    def finish_login(self, cookie_text: str, state: str, code: str, issuer_error: str = "") -> Identity:
        """Return the identity of the user who comes back.

        Args:
            cookie_text: Text of the browser's cookie, "" without one.
            state: State from the issuer.
            code: Code from the issuer.
            issuer_error: Error from the issuer instead of a code.

        Raises:
            Unauthenticated: The answer belongs to another log-in, or it proves nothing.
            IssuerError: The issuer does not answer correctly.
        """
        if not cookie_text or not hmac.compare_digest(state.encode(), _derive(cookie_text, "state").encode()):
            raise Unauthenticated(
                msg(
                    "accounts.log_not_begun_browser",
                    "this log-in was not begun in this browser, or more than ten minutes ago",
                ),
                _AGAIN,
            )
        if issuer_error or not code:
            raise Unauthenticated(msg("accounts.issuer_refused", f"the issuer refused: {_word(issuer_error)}"), _AGAIN)
        tokens = self._redeemed(code, _derive(cookie_text, "verifier"))
        claims = self._claims(tokens, _derive(cookie_text, "nonce"))
        return replace(self._identity(claims), token=str(tokens["id_token"]), session=_text(claims.get("sid")))

    def end_session_url(self, token: str) -> str:
        """Return the URL at which a browser ends its session at the issuer; "" if the issuer has none.

        Args:
            token: ID token of the log-in.
        """
        try:
            address = self._endpoint("end_session") if self._load_metadata().get("end_session_endpoint") else ""
        except IssuerError:  # the local log-out does not depend on the issuer
            return ""
        asked = {"id_token_hint": token, "client_id": self._client, "post_logout_redirect_uri": self._back}
        return address and f"{address}{'&' if urlsplit(address).query else '?'}{urlencode(asked)}"

    def parse_logout_token(self, token: str) -> LogoutOrder:
        """Return the order of a logout token.

        Raises:
            BadParameter: The token is invalid.
            IssuerError: The issuer does not answer correctly.

        Source: OpenID Connect Back-Channel Logout 1.0, sections 2.4 and 2.6.
        """
        from joserfc import errors, jwt

        needed: Any = {"essential": True}
        by: Any = {**needed, "value": self.url}
        to: Any = {**needed, "value": self._client}
        rules = jwt.JWTClaimsRegistry(leeway=MAX_CLOCK_SKEW_S, iss=by, aud=to, iat=needed, exp=needed, jti=needed)
        try:
            claims = self._signed(token).claims
            rules.validate(claims)
            name, exp, subject, session = str(claims["jti"]), int(claims["exp"]), claims.get("sub"), claims.get("sid")
            wanted = (
                LOGOUT_EVENT in claims["events"] and "nonce" not in claims and bool(_text(subject) or _text(session))
            )
        except (errors.JoseError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            claim = _word(str(getattr(error, "claim", "") or type(error).__name__))
            raise BadParameter(
                msg("accounts.logout_token_proves_nothing", f"logout_token: it proves nothing: {claim}")
            ) from error
        if not wanted or exp > time.time() + MAX_LOGOUT_AGE_S:
            raise BadParameter(msg("accounts.logout_token_ends_no", "logout_token: it ends no session"))
        user = f"{self.url} {subject}" if _text(subject) else ""
        return LogoutOrder(user, _text(session), name, (exp + MAX_CLOCK_SKEW_S) * 10**9)

    def _redeemed(self, code: str, verifier: str) -> dict[str, Any]:
        """Exchange a code for an access token and an ID token."""
        methods = self._load_metadata().get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        method = "client_secret_post" if "client_secret_post" in methods else "client_secret_basic"
        body = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._back,
            "code_verifier": verifier,
        }
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        prove = _authlib("oauth2.auth").ClientAuth(self._client, self._secret, method if self._secret else "none")
        url, headers, text = prove.prepare("POST", self._endpoint("token"), form, urlencode(body))
        return self._request(url, headers, text.encode())

    def _claims(self, tokens: Mapping[str, Any], nonce: str) -> dict[str, Any]:
        """Return the claims of the ID token, completed by the issuer's user information.

        Raises:
            Unauthenticated: The token does not prove this log-in.
        """
        from joserfc import errors

        its: Any = {"iss": {"essential": True, "value": self.url}, "aud": {"essential": True, "value": self._client}}
        parameters = {"nonce": nonce, "client_id": self._client, "access_token": tokens.get("access_token")}
        try:
            token = self._signed(str(tokens.get("id_token", "")))
            claims = _authlib("oidc.core").CodeIDToken(token.claims, token.header, its, parameters)
            claims.validate(int(time.time()), MAX_CLOCK_SKEW_S)
        except (errors.JoseError, ValueError, KeyError, TypeError, AttributeError) as error:
            claim = str(getattr(error, "claim", "") or type(error).__name__)
            if isinstance(error, errors.ExpiredTokenError) or claim in ("iat", "nbf"):
                error_text = msg(
                    "accounts.issuers_answer_not_time", "the issuer's answer is not of this time, or the clocks differ"
                )
                raise Unauthenticated(
                    error_text, msg("accounts.check_clock_server", "check the clock of this server")
                ) from error
            raise Unauthenticated(
                msg("accounts.issuers_answer_proves_nothing", f"the issuer's answer proves nothing: {_word(claim)}"),
                _AGAIN,
            ) from error
        wanted = {"email", *(["groups"] if self._admin_group else [])}
        more = self._user(tokens, claims["sub"]) if wanted - claims.keys() else {}
        return {**more, **claims}

    def _signed(self, text: str) -> Any:
        """Verify a token with the issuer's keys.

        Raises:
            JoseError, ValueError, KeyError, TypeError, AttributeError: No key of the issuer has signed the token.
            IssuerError: The issuer does not answer correctly.
        """
        from joserfc import jwt
        from joserfc.jwk import KeySet

        keys = self._request(self._endpoint("jwks", "_uri"))  # not cached, because an issuer changes its keys
        signing: Any = [key for key in keys["keys"] if key["kty"] in ("RSA", "EC") and key.get("use") != "enc"]
        key_set = cast("Any", KeySet).import_key_set({"keys": signing})
        return jwt.decode(text, key_set, algorithms=_SIGNED_BY)

    def _user(self, tokens: Mapping[str, Any], subject: object) -> dict[str, Any]:
        """Return the issuer's user information; empty if it is about another user."""
        if not (self._load_metadata().get("userinfo_endpoint") and tokens.get("access_token")):
            return {}
        user_info = self._request(self._endpoint("userinfo"), {"Authorization": f"Bearer {tokens['access_token']}"})
        return user_info if user_info.get("sub") == subject else {}

    def _identity(self, claims: Mapping[str, Any]) -> Identity:
        """Return the identity in claims.

        Raises:
            Unauthenticated: The e-mail address is missing or not verified.
        """
        email, subject, groups = claims.get("email"), claims["sub"], claims.get("groups")
        if not isinstance(email, str) or not isinstance(subject, str) or not 0 < len(subject) <= 255:
            raise Unauthenticated(
                msg("accounts.issuer_gives_no_e", "the issuer gives no e-mail address"),
                msg("accounts.administrator_can_let_server", "its administrator can let this server have it"),
            )
        if claims.get("email_verified") is not True:
            hint = msg("accounts.verify_there_ask_issuers", "verify it there, or ask the issuer's administrator")
            raise Unauthenticated(
                msg("accounts.issuer_not_verified_address", f"the issuer has not verified the address {email[:254]}"),
                hint,
            )
        admin = self._admin_group in groups if isinstance(groups, list) else False
        name = claims.get("name")
        return Identity(
            f"{self.url} {subject}", email, name if isinstance(name, str) else "", admin if self._admin_group else None
        )

    def _endpoint(self, name: str, ending: str = "_endpoint") -> str:
        """Return a URL of the issuer's metadata.

        Raises:
            IssuerError: The URL is missing or has no TLS.
        """
        url = self._load_metadata().get(f"{name}{ending}")
        if not isinstance(url, str) or urlsplit(url).scheme not in {"https", urlsplit(self.url).scheme}:
            raise IssuerError(
                msg("accounts.names_no_tls", f"{self.url} names no {name}{ending} with TLS"),
                msg("accounts.issuer_openid_connect", "is it an issuer of OpenID Connect?"),
            )
        return url

    def _load_metadata(self) -> dict[str, Any]:
        """Return the issuer's metadata.

        Raises:
            IssuerError: The metadata belongs to another issuer.
        """
        at, metadata = self._metadata
        if time.monotonic() - at > METADATA_CACHE_S:
            metadata = self._request(f"{self.url.rstrip('/')}/.well-known/openid-configuration")
            if metadata.get("issuer") != self.url:
                hint = msg("accounts.oidc_exactly_issuer_calls", "--oidc is exactly as the issuer calls itself")
                raise IssuerError(
                    msg("accounts.calls_itself", f"{self.url} calls itself {str(metadata.get('issuer'))[:200]!r}"), hint
                )
            self._metadata = time.monotonic(), metadata
        return metadata

    def _request(self, url: str, headers: Mapping[str, str] | None = None, body: bytes | None = None) -> dict[str, Any]:
        """Return the JSON object that the issuer answers with.

        Raises:
            IssuerError: The issuer does not answer correctly.
            Unauthenticated: The issuer rejects the request.
        """
        request = urllib.request.Request(url, body, {"Accept": "application/json", **(headers or {})})
        try:
            with _OPENER.open(request, timeout=TIMEOUT_S) as answer:
                document = json.loads(answer.read(_MOST))
        except urllib.error.HTTPError as error:
            if body is not None and error.code == 400:  # a used or expired code
                raise Unauthenticated(
                    msg("accounts.issuer_refused", f"the issuer refused: {_word(_error_of(error))}"), _AGAIN
                ) from error
            raise IssuerError(
                msg("accounts.answers", f"{self.url} answers with {error.code}"),
                msg("accounts.tell_administrator", "contact an administrator"),
            ) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            hint = msg("accounts.try_again_later_tell", "try again later, or contact an administrator")
            raise IssuerError(
                msg("accounts.not_answer_should", f"{self.url} does not answer as it should: {error}"), hint
            ) from error
        if not isinstance(document, dict):
            raise IssuerError(
                msg("accounts.not_answer_should_no", f"{self.url} does not answer as it should: no JSON object")
            )
        return cast("dict[str, Any]", document)


class _Still(urllib.request.HTTPRedirectHandler):
    """Rejects redirects, because a secret is for the issuer only."""

    def redirect_request(self, req: object, fp: object, code: int, msg: str, headers: object, newurl: str) -> None:
        """Return None, which makes the redirect an error."""


_OPENER = urllib.request.build_opener(_Still)


def _authlib(name: str) -> Any:
    """Import a module of Authlib, which has no type annotations. Servers without an issuer do not import it."""
    try:
        return import_module(f"authlib.{name}")
    except ImportError as error:
        raise VisualprofError(
            msg("accounts.openid_connect_needs_authlib", "OpenID Connect needs Authlib"),
            msg("accounts.pip_install_visualprof_team", "pip install 'visualprof[team]'"),
        ) from error


def _derive(cookie_text: str, purpose: str) -> str:
    """Derive a secret for a log-in. No derived secret reveals another one."""
    return hmac.new(cookie_text.encode(), purpose.encode(), hashlib.sha256).hexdigest()


def _error_of(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(_MOST))["error"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _text(claim: object) -> str:
    """Return a claim that is a text, "" for all other values."""
    return claim if isinstance(claim, str) else ""


def _word(text: str) -> str:
    """Return text from the issuer if it is a single word, because error messages must not contain arbitrary text."""
    return text if re.fullmatch(r"\w{1,60}", text, re.ASCII) else msg("accounts.not_say_why", "it does not say why")
