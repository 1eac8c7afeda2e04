"""Hosts that confined commands may reach: names, addresses, entries of `sandbox.network`, rules
`Network(host)`.
"""

import ipaddress
import re
from collections.abc import Sequence
from typing import NamedTuple

from longrein.permissions.rules import names, parse_rule
from longrein.permissions.types import Rules, Verdict
from longrein_context.events.escape import whole_number

NETWORK = "Network"
"""Name in rules, and of the questions about hosts."""
ASK = "ask"
"""Entry of `sandbox.network` that names no host: each one is asked for."""
PORTS = (80, 443)
"""Ports of an entry that is written without a port."""
PORT_MAX = 65_535
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_LOCAL_NAT64 = ipaddress.ip_network("64:ff9b:1::/48")

# --- Names and addresses --------------------------------------------------------------------------


class Target(NamedTuple):
    """Host in canonical form, without brackets, and port."""

    host: str
    port: int

    @property
    def entry(self) -> str:
        """The entry of `sandbox.network` that covers this host, and of others only those on the
        same port.
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port in PORTS else f"{host}:{self.port}"


def canonical_host(written: str) -> str:
    """Return a host in lower case, without its last dot and without brackets. Raises ValueError for
    an odd one.

    Numbers are accepted in their usual form only: `127.1`, `0x7f.1` and `2130706433` are refused.
    """
    text = written.lower()
    if text.startswith("[") and text.endswith("]"):
        address = ipaddress.IPv6Address(text[1:-1])
        if address.scope_id:
            raise ValueError("an address with a zone")
        return str(address)
    text = text.removesuffix(".")
    labels = text.split(".")
    if len(text) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("not the name of a host")
    if _NUMERIC_LABEL.fullmatch(labels[-1]):
        return str(ipaddress.IPv4Address(text))
    return text


def is_address(host: str) -> bool:
    """Return True for an IP address in canonical form."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_public(address: str) -> bool:
    """Return True if an address can be reached from the whole internet, also as written inside
    an IPv6 address.
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return is_public(str(found.ipv4_mapped))
        if found in _NAT64:
            return is_public(str(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)))
        tunnelled = found.sixtofour is not None or found.teredo is not None or found in _LOCAL_NAT64
        if tunnelled or found.scope_id or found.is_site_local:
            return False
    return found.is_global and not (found.is_multicast or found.is_reserved or found.is_unspecified)


# --- Entries --------------------------------------------------------------------------------------


def matches_entry(entry: str, target: Target, *, any_port: bool = False) -> bool:
    """Return True if an entry covers a target.

    Entries are `example.com`, `*.example.com` (each name below, not the name itself), an address, a
    range of addresses (`10.0.0.0/8`), each with or without a port: `example.com:8080`. With
    `any_port` an entry without a port covers all.
    """
    name, port = _split_port(entry)
    if name == ASK:
        return False
    if target.port != port if port else not any_port and target.port not in PORTS:
        return False
    if name.startswith("*."):
        return target.host.endswith(name[1:].removesuffix(".")) and not is_address(target.host)
    try:
        if "/" in name:
            return is_address(target.host) and ipaddress.ip_address(
                target.host
            ) in ipaddress.ip_network(name)
        return canonical_host(name) == target.host
    except ValueError:
        return False


def entry_problem(entry: str) -> str:
    """Return why an entry of `sandbox.network` covers no host; '' for a good one."""
    if entry in (ASK, "*"):
        return ""
    name, port = _split_port(entry)
    if "://" in entry:
        return "it is an address of a page: write the host alone"
    if port > PORT_MAX:
        return "the port is above 65535"
    try:
        if (name[:1].isdigit() and "/" in name) or (name.count(":") > 1 and "/" in name):
            ipaddress.ip_network(name)
        else:
            canonical_host(name.removeprefix("*."))
    except ValueError:
        return (
            "write a host (example.com), all names below one (*.example.com), an address or a "
            "range (10.0.0.0/8)"
        )
    return ""


def _split_port(entry: str) -> tuple[str, int]:
    """Return the entry in lower case without its port, and the port; 0 for none."""
    name = entry.strip().lower()
    head, colon, tail = name.rpartition(":")
    if colon and tail.isdecimal() and (":" not in head or head.endswith("]")):
        return head, whole_number(tail, PORT_MAX + 1)
    return name, 0


# --- The decision ---------------------------------------------------------------------------------


def judge_host(target: Target, entries: Sequence[str], rules: Rules, mode: str) -> Verdict:
    """Decide whether a confined command may reach a host.

    `entries` are those of `sandbox.network`. Rules are `Network` for all public hosts and
    `Network(host)`, with an entry as the host. Only entries, not rules or answers, open addresses
    that are not public.
    """
    rule = _find_rule(rules.deny, target)
    if rule:
        return Verdict("deny", f"the rule {rule} forbids {target.entry}", rule)
    rule = "" if mode == "bypassPermissions" else _find_rule(rules.ask, target)
    if not rule and any(matches_entry(entry, target) for entry in entries):
        return Verdict("allow", "sandbox.network names it")
    advice = f'add "{target.entry}" to sandbox.network to allow it'
    if _is_private(target.host) and not any(matches_entry(entry, target) for entry in entries):
        return Verdict("deny", f"{target.entry} is no public address; {advice}")
    allowing = "" if rule else _find_rule(rules.allow, target, allow=True)
    if allowing:
        return Verdict("allow", f"the rule {allowing} allows it", allowing)
    if mode in ("plan", "dontAsk"):
        return Verdict(
            "deny",
            f"{target.entry} is not allowed, and the mode {mode} asks for no host; {advice}",
            rule,
        )
    why = f"the rule {rule} asks" if rule else "sandbox.network does not name it"
    shown = f"reach {target.host} on port {target.port}"
    suggestions = () if rule else (f"{NETWORK}({target.entry})",)
    return Verdict(
        "ask",
        f"a command in the sandbox wants to reach {target.entry}; {why}",
        rule,
        suggestions,
        shown,
    )


def _find_rule(texts: Sequence[str], target: Target, *, allow: bool = False) -> str:
    """Return the first rule that covers a target. In doubt a rule covers it, unless it is to
    allow.
    """
    for text in texts:
        rule = parse_rule(text)
        if rule.tool != NETWORK if allow else not names(rule, NETWORK):
            continue
        if rule.problem or (rule.spec and entry_problem(rule.spec)):
            covered = not allow
        else:
            covered = rule.spec in ("", "*") or matches_entry(rule.spec, target, any_port=not allow)
        if covered:
            return text
    return ""


def _is_private(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    return is_address(host) and not is_public(host)
