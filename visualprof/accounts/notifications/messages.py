"""Texts of notifications in the languages of users."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any
from urllib.parse import urlencode

from visualprof.accounts.notifications.kinds import Kind, Language, Notification

# Subject and text.
_EN: dict[Kind, tuple[str, str]] = {
    "job_finished": ("{name}: measured", "The job {name} finished at {at}."),
    "job_failed": ("{name}: failed", "The job {name} failed at {at}. Its page says why."),
    "machine_lost": ("{name}: probably lost", "Nothing was heard of the machine {name} after {at}."),
    "regression": ("{name}: {percent} % slower", "{name} is {percent} % slower than on {before}.{more}"),
    "trial": ("A trial", "Notices of visualprof arrive here."),
}
_ZH: dict[Kind, tuple[str, str]] = {
    "job_finished": ("{name}：测量完成", "任务 {name} 已于 {at} 完成。"),
    "job_failed": ("{name}：失败", "任务 {name} 已于 {at} 失败，原因见任务页面。"),
    "machine_lost": ("{name}：可能已失联", "机器 {name} 自 {at} 起再无消息。"),
    "regression": ("{name}：慢了 {percent}%", "{name} 比 {before} 慢 {percent}%。{more}"),
    "trial": ("测试通知", "visualprof 的通知可以送达此处。"),
}
# E-mails with links for users who are not logged in.
_LINKS: dict[Language, dict[str, tuple[str, str]]] = {
    "en": {
        "confirm": ("Make your account", "This link makes your account. It works once, within a day:"),
        "reset": ("Set a new password", "This link sets a new password. It works once, within an hour:"),
        "known": ("You have an account", "This address has an account already. Log in here:"),
        "why": ("", "Somebody, probably you, asked for this. If it was not you, do nothing."),
    },
    "zh": {
        "confirm": ("注册账户", "请用此链接注册账户，24 小时内有效，仅可使用一次："),
        "reset": ("设置新密码", "请用此链接设置新密码，1 小时内有效，仅可使用一次："),
        "known": ("你已有账户", "此邮箱已注册，请在此登录："),
        "why": ("", "这封邮件应是你本人请求的；若不是，无需理会。"),
    },
}
_TEXTS: dict[Language, dict[Kind, tuple[str, str]]] = {"en": _EN, "zh": _ZH}
_MORE: dict[Language, str] = {"en": " So are {n} more of its job.", "zh": "该任务中另有 {n} 项变慢。"}
_WHY: dict[Language, str] = {
    "en": "You chose on the Account page to get this.",
    "zh": "你在账户页面选择了接收此通知。",
}


def link_to(notice: Notification, base_url: str) -> str | None:
    """Return the URL of the page with details; None if the server's URL is unknown."""
    if not base_url:
        return None
    pages = {"machine_lost": "agents", "trial": "account"}
    if notice.slower:
        ids = (
            report.replace("%", "%25").replace(",", "%2C") for report in notice.slower.reports
        )  # as the page reads a list
        return f"{base_url}/#/evaluation?{urlencode({'reports': ','.join(ids)})}"
    return f"{base_url}/#/{pages.get(notice.kind, f'run?job={notice.subject}')}"


def link_message(wish: str, language: Language, link: str) -> tuple[str, str]:
    """Return subject and text of an e-mail with a link. `wish` is confirm, reset, or known."""
    words = _LINKS[language]
    subject, text = words[wish]
    return f"[visualprof] {subject}", f"{text}\n\n{link}\n\n-- \n{words['why'][1]}"


def email_message(notice: Notification, language: Language, base_url: str) -> tuple[str, str]:
    """Return subject and text of an e-mail."""
    facts = {"at": _time(notice.at_ns, "%Y-%m-%d %H:%M UTC")}
    facts["name"] = "".join(letter for letter in notice.name if letter.isprintable())
    if slower := notice.slower:
        more = _MORE[language].format(n=slower.more) if slower.more else ""
        facts |= {"percent": f"{slower.ratio:.0%}"[:-1], "before": _time(slower.before_ns, "%Y-%m-%d"), "more": more}
    subject, text = (part.format(**facts) for part in _TEXTS[language][notice.kind])
    parts = (text, link_to(notice, base_url), f"-- \n{_WHY[language]}")
    return f"[visualprof] {subject}", "\n\n".join(part for part in parts if part)


def _time(at_ns: int, format: str) -> str:
    return datetime.fromtimestamp(at_ns // 10**9, timezone.utc).strftime(format)


def webhook_payload(notice: Notification, language: Language, base_url: str) -> dict[str, Any]:
    """Return the JSON object that a webhook receives."""
    subject, text = email_message(notice, language, "")
    return {
        "id": notice.seq,
        "kind": notice.kind,
        "subject": notice.subject,
        "name": notice.name,
        "at_ns": notice.at_ns,
        "link": link_to(notice, base_url),
        "text": f"{subject}: {text.partition(chr(10))[0]}",
    }
