"""A small provider of OpenID Connect inside this process: codes with PKCE, tokens signed by keys that may change."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import secrets
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

EVENT = "http://schemas.openid.net/event/backchannel-logout"
CLIENT, SECRET = "visualprof", "the-secret-of-the-client"

KEY = RSAKey.generate_key(2048, {"kid": "first"})


@dataclass
class Provider:
    """Whom it lets in, and how it misbehaves. lies: claims that it states instead of the true ones; None is without."""

    port: int = 0
    person: dict[str, Any] = field(default_factory=lambda: {"sub": "42", "email": "kim@example.org", "name": "Kim"})
    lies: dict[str, Any] = field(default_factory=dict)
    in_userinfo: dict[str, Any] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    key: RSAKey | ECKey = field(default_factory=lambda: KEY)
    signs_with: Any = None  # another key than it shows
    alg: str = "RS256"
    fails: bool = False
    asked: list[str] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    left: list[dict[str, Any]] = field(default_factory=list)  # whose sessions were ended

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/realms/lab"

    def visit(self, address: str) -> dict[str, str]:
        """What a browser brings back after its user has logged in: the checks are those of RFC 6749 and 7636."""
        parts = urlsplit(address)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{self.url}/auth"
        assert (asked["response_type"], asked["client_id"]) == ("code", CLIENT)
        assert asked["code_challenge_method"] == "S256"
        assert set(asked["scope"].split()) == {"openid", "email", "profile"}
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        return {"state": asked["state"], "code": code}

    def leave(self, address: str, back: str) -> dict[str, Any]:
        """Whose session a browser ends here: the checks are those of OpenID Connect RP-Initiated Logout 1.0."""
        parts = urlsplit(address)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{self.url}/end"
        assert (asked["client_id"], asked["post_logout_redirect_uri"]) == (CLIENT, back)
        claims = jwt.decode(asked["id_token_hint"], self.key, algorithms=[self.alg]).claims
        assert (claims["iss"], claims["aud"]) == (self.url, CLIENT)
        return dict(claims)

    def log_out(self, after_s: int = 0, **lies: Any) -> dict[str, str]:
        """What it posts to end sessions, by OpenID Connect Back-Channel Logout 1.0; a claim of None is left out."""
        now = int(time.time()) + after_s
        true = {"iss": self.url, "aud": CLIENT, "iat": now, "exp": now + 120, "jti": secrets.token_hex(8)}
        claims = {**true, "sub": self.person["sub"], "events": {EVENT: {}}, **lies}
        claims = {name: value for name, value in claims.items() if value is not None}
        header = {"alg": self.alg, "kid": self.key.kid, "typ": "logout+jwt"}
        return {"logout_token": jwt.encode(header, claims, self.signs_with or self.key, algorithms=[self.alg])}

    def answer(self, path: str, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        self.asked.append(path)
        if self.fails:
            return 500, {}
        if path == "/realms/lab/.well-known/openid-configuration":
            names = {name: f"{self.url}/{name}" for name in ("auth", "token", "keys", "user", "end")}
            return 200, {
                "issuer": self.url,
                "authorization_endpoint": names["auth"],
                "token_endpoint": names["token"],
                "jwks_uri": names["keys"],
                "userinfo_endpoint": names["user"],
                "end_session_endpoint": names["end"],
                "token_endpoint_auth_methods_supported": ["client_secret_basic"],
                **self.metadata,
            }
        if path == "/realms/lab/keys":
            return 200, dict(KeySet([self.key]).as_dict(private=False))
        if path == "/realms/lab/user":
            return (200, self.in_userinfo or {}) if authorization == "Bearer access" else (401, {})
        if path == "/realms/lab/token":
            return self.tokens(form, authorization)
        return 404, {}

    def tokens(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        message = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if authorization != f"Basic {message}" and (form.get("client_id"), form.get("client_secret")) != (
            CLIENT,
            SECRET,
        ):
            return 401, {"error": "invalid_client"}
        asked = self.codes.pop(form["code"], None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=")
        if (
            asked is None
            or challenge.decode() != asked["code_challenge"]
            or form["redirect_uri"] != asked["redirect_uri"]
        ):
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        true = {"iss": self.url, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": asked["nonce"]}
        claims = {"email_verified": True, **self.person, **true, **self.lies}
        claims = {name: value for name, value in claims.items() if value is not None}
        key = self.signs_with or self.key
        header = {"alg": self.alg, "kid": self.key.kid}
        return 200, {"access_token": "access", "id_token": jwt.encode(header, claims, key, algorithms=[self.alg])}


@contextmanager
def provider() -> Generator[Provider]:
    issuer = Provider()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.say({name: values[0] for name, values in form.items()})

        def do_GET(self) -> None:
            address = f"http://127.0.0.1:{issuer.port}{self.path}"
            if self.path.startswith("/realms/lab/auth?"):
                back = issuer.visit(address)
                self.lead(f"{issuer.codes[back['code']]['redirect_uri']}?{urlencode(back)}&session_state=x")
            elif self.path.startswith("/realms/lab/end?"):
                back = parse_qs(urlsplit(address).query)["post_logout_redirect_uri"][0]
                issuer.left.append(issuer.leave(address, back))
                self.lead(back)
            else:
                self.say({})

        def lead(self, address: str) -> None:
            self.send_response(302)
            self.send_header("Location", address)
            self.end_headers()

        def say(self, form: dict[str, str]) -> None:
            status, answer = issuer.answer(self.path, form, self.headers.get("Authorization", ""))
            body = json.dumps(answer).encode()
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", f"{issuer.url}/keys")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer.port = server.server_port
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield issuer
        server.shutdown()
