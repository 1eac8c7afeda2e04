"""Decisions on hosts that confined commands want to reach."""

from collections.abc import Sequence

import pytest

from longrein.choices import MODES
from longrein.permissions import Rules
from longrein.permissions.network_hosts import (
    Target,
    canonical_host,
    entry_problem,
    is_public,
    judge_host,
    matches_entry,
)
from tests.tables import split_words


def target(text: str) -> Target:
    host, _, port = text.rpartition(":")
    return Target(canonical_host(host), int(port))


def decide(
    wanted: str,
    entries: Sequence[str] = ("ask",),
    *,
    allow: Sequence[str] = (),
    ask: Sequence[str] = (),
    deny: Sequence[str] = (),
    mode: str = "default",
) -> str:
    return judge_host(
        target(wanted), entries, Rules(tuple(allow), tuple(ask), tuple(deny)), mode
    ).kind


def test_a_host_that_nothing_names_is_asked_for_with_the_rule_that_always_would_store() -> None:
    found = judge_host(target("Example.com:443"), ["pypi.org"], Rules(), "default")
    told = (found.kind, found.shown, found.suggestions)
    assert told == ("ask", "reach example.com on port 443", ("Network(example.com)",))
    assert (
        found.reason
        == "a command in the sandbox wants to reach example.com; sandbox.network does not name it"
    )
    other = judge_host(target("example.com:22"), ["example.com"], Rules(), "default")
    assert (other.kind, other.suggestions) == ("ask", ("Network(example.com:22)",))


@pytest.mark.parametrize("mode", MODES)
def test_modes(mode: str) -> None:
    asks = "deny" if mode in ("plan", "dontAsk") else "ask"
    assert decide("example.com:443", mode=mode) == asks
    assert decide("example.com:443", ["example.com"], mode=mode) == "allow"
    assert decide("example.com:443", allow=["Network(example.com)"], mode=mode) == "allow"
    found = decide("example.com:443", ["example.com"], deny=["Network(example.com)"], mode=mode)
    assert found == "deny"
    assert decide("10.0.0.1:443", mode=mode) == "deny"


@pytest.mark.parametrize(("rules", "verdict"), [
    ({"allow": ["Network"]}, "allow"),
    ({"allow": ["Network(*)"]}, "allow"),
    ({"allow": ["Network(*.example.com)"]}, "allow"),
    ({"allow": ["Network(WWW.Example.com)"]}, "allow"),
    ({"allow": ["Network(example.com)"]}, "ask"),
    ({"allow": ["Network(www.example.com:8443)"]}, "ask"),
    ({"allow": ["Network(https://www.example.com/)"]}, "ask"),
    ({"allow": ["Network(www.example.com"]}, "ask"),
    ({"allow": ["*"]}, "ask"),
    ({"allow": ["Bash", "WebFetch(domain:www.example.com)"]}, "ask"),
    ({"allow": ["Network"], "ask": ["Network(www.example.com)"]}, "ask"),
    ({"allow": ["Network"], "deny": ["Network(*.example.com)"]}, "deny"),
    ({"allow": ["Network"], "deny": ["Network(www.example.com:8080)"]}, "allow"),
    ({"deny": ["Network"]}, "deny"),
    ({"deny": ["Network(*)"]}, "deny"),
    ({"deny": ["*"]}, "deny"),
    ({"deny": ["Network(https://other.example/)"]}, "deny"),
    ({"deny": ["Network(other.example)"]}, "ask"),
])  # fmt: skip
def test_rules(rules: dict[str, list[str]], verdict: str) -> None:
    assert decide("www.example.com:443", **rules) == verdict


def test_the_word_ask_names_no_host() -> None:
    assert decide("ask:443", ["ask"]) == "ask"


def test_a_deny_rule_without_a_port_holds_for_all_ports() -> None:
    assert decide("example.com:8443", deny=["Network(example.com)"]) == "deny"
    assert decide("example.com:8443", allow=["Network(example.com)"]) == "ask"


@pytest.mark.parametrize(
    "wanted",
    split_words("""
        localhost:80 x.localhost:80 127.0.0.1:80 10.1.2.3:443 169.254.169.254:80 [::1]:80
    """),
)
def test_s063_only_the_settings_open_addresses_that_are_not_public(wanted: str) -> None:
    found = decide(wanted, allow=["Network", f"Network({wanted})"], mode="bypassPermissions")
    assert found == "deny"
    assert decide(wanted, [wanted]) == "allow"


def test_entries_that_cover_nothing_are_a_problem() -> None:
    good = """
        * ask pypi.org *.debian.org localhost:3000 127.0.0.1 [::1]:80 10.0.0.0/8 10.0.0.0/8:443
        fd00::/8 xn--bcher-kva.example
    """
    bad = """
        https://pypi.org pypi.org/simple *. *.*.org 10.0.0.1/8 pypi.org:0x50 pypi.org:99999 127.1
        bücher.example fd00::/200
    """
    for entry in good.split():
        assert entry_problem(entry) == "", entry
    for entry in (*bad.split(), "", "a b"):
        assert entry_problem(entry), entry


def test_s063_an_address_is_public_if_the_whole_internet_reaches_it() -> None:
    public = """
        1.1.1.1 8.8.8.8 2606:4700::1111 ::ffff:1.1.1.1 64:ff9b::101:101
    """
    private = """
        10.0.0.1 127.0.0.1 169.254.169.254 192.168.0.1 0.0.0.0 224.0.0.1 239.1.1.1 255.255.255.255
        240.0.0.1 ::1 :: fe80::1 fec0::1 fc00::1 ff02::1 ff0e::1 ::ffff:10.0.0.1 64:ff9b::a00:1
        64:ff9b:1::101:101 2002:101:101:: 2001:0:101:101:: fe80::1%eth0 2606:4700::1111%1 x 1.1.1
        172.16.0.1 100.64.0.1 100.127.255.255 192.0.0.1 192.0.2.1 198.18.0.1 fd00:ec2::254
        2001:db8::1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 ::127.0.0.1 64:ff9b::a9fe:a9fe
        2002:7f00:1:: 2002:a00:1:: 2001:0:4136:e378:8000:63bf:3fff:fdd2
    """
    for addresses, expected in ((public, True), (private, False)):
        for address in addresses.split():
            assert is_public(address) is expected, address


def test_a_host_has_one_way_to_be_written() -> None:
    def read(written: str) -> str:
        try:
            return canonical_host(written)
        except ValueError:
            return ""

    label = "a" * 63
    for written, host in (
        ("Example.COM.", "example.com"),
        ("[::1]", "::1"),
        ("[::0:1]", "::1"),
        ("[::1", ""),
        ("::1]", ""),
        ("[fe80::1%eth0]", ""),
        ("1.2.3.4", "1.2.3.4"),
        ("127.1", ""),
        ("0x7f.1", ""),
        (label, label),
        (label + "a", ""),
        (f"{label}.{label}.{label}.{'a' * 61}", f"{label}.{label}.{label}.{'a' * 61}"),
        (f"{label}.{label}.{label}.{'a' * 62}", ""),
        ("-a", ""),
        ("a-", ""),
        ("a_b.example.com", "a_b.example.com"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
    ):
        assert read(written) == host, written
    odd = r". .. a..b example.com.. a/b a@b 2130706433 0177.0.0.1 0x7f000001 1.2.3 256.1.1.1"
    odd += r" 1.2.3.4.5 a.1 [example.com] bücher.example %31.example localhost\ * *.example.com"
    for written in (*odd.split(), "", "a b", "a\0.example", "a\n", "\u2488example"):
        assert read(written) == "", written


ENTRY_ROWS = """
example.com      => example.com:443 example.com:80
example.com      != example.com:22 www.example.com:443 10.0.0.1:443
example.com:22   => example.com:22
example.com:22   != example.com:443
*.example.com    => www.example.com:443 a.b.example.com:80
*.example.com    != example.com:443 xexample.com:443
*.example.com.   => www.example.com:443
*.1              != 10.0.0.1:443
10.0.0.0/8       => 10.1.2.3:443
10.0.0.0/8       != 11.0.0.1:443 example.com:443
10.0.0.0/8:22    => 10.1.2.3:22
[::1]            => ::1:443
[::1]:22         => ::1:22
[::1]:22         != ::1:443
ask              != ask:443
a b              != example.com:443
10.0.0.0/x       != 10.1.2.3:443
"""


def test_what_an_entry_covers() -> None:
    for row in ENTRY_ROWS.strip().splitlines():
        entry, sign, wanted = row[:17].strip(), row[17:19], row[20:].split()
        for one in wanted:
            host, _, port = one.rpartition(":")
            assert matches_entry(entry, Target(host, int(port))) is (sign == "=>"), (entry, one)
    assert matches_entry("example.com", Target("example.com", 22), any_port=True)
    assert not matches_entry("example.com:23", Target("example.com", 22), any_port=True)


def test_why_an_entry_covers_nothing() -> None:
    names = "ask * example.com example.com:65535 *.example.com"
    addresses = "10.0.0.0/8 10.0.0.0/8:22 [::1]:22 1.2.3.4"
    for entry in f"{names} {addresses}".split():
        assert entry_problem(entry) == "", entry
    found = entry_problem("https://example.com")
    assert found == "it is an address of a page: write the host alone"
    assert entry_problem("example.com:65536") == "the port is above 65535"
    for entry in ("example.com/x", "10.0.0.0/33", "10.0.0.1/8", "1.2.3", "a b", "[::1", "fc00::/x"):
        assert entry_problem(entry).startswith("write a host (example.com), all names"), entry
