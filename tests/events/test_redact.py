"""Redaction of secrets (S070): known values and token forms; idempotent; the same after a resume."""

import ast
import random
import re
import string
import sys
import timeit
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longrein.events import marker, redact, redactor
from longrein.events.redact import suspicious

NONCE = "5ca1ab1e"
RED = "\x00"  # Stands for one marker in the tables below


def cleaned(text: str, *secrets: str) -> str:
    """`text` redacted, with each marker as RED."""
    out = redact(text, secrets, NONCE)
    pieces = out.split(f"[longrein:{NONCE} secret: ")
    assert all(p[:8].isalnum() and p[8] == "]" for p in pieces[1:]), out
    return RED.join([pieces[0], *(p[9:] for p in pieces[1:])])


A40, A24 = "aB3" * 14, "Zy9" * 8
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA75\nabc/+=\n-----END RSA PRIVATE KEY-----"

SHAPES = [
    (f"key sk-{A40} end", f"key {RED} end"),
    (f"sk-ant-api03-{A40}-x_y", RED),
    (f"sk-proj-{A40}", RED),
    (f"OPENAI_API_KEY=sk-{A40}", f"OPENAI_API_KEY={RED}"),
    (f"remote https://ghp_{A40}@github.com/x", f"remote https://{RED}@github.com/x"),
    (f"gho_{A40} ghs_{A40}", f"{RED} {RED}"),
    (f"github_pat_{A40}", RED),
    ("AKIAIOSFODNN7EXAMPLE", RED),
    ("id=ASIAIOSFODNN7EXAMPLE;", f"id={RED};"),
    ("AIza" + "x" * 35, RED),
    (f"xoxb-1234567890-{A24}", RED),
    (f"glpat-{A24}", RED),
    (f"npm_{A40}", RED),
    (f"hf_{A40}", RED),
    (f"pypi-{A40}", RED),
    (f"gsk_{A40}", RED),
    (JWT, RED),
    (f'{{"token": "{JWT}"}}', f'{{"token": "{RED}"}}'),
    (f"Authorization: Bearer {A24}", f"Authorization: Bearer {RED}"),
    (f"authorization: basic {A24}", f"authorization: basic {RED}"),
    (f"curl -H 'Authorization: token {A24}' x", f"curl -H 'Authorization: token {RED}' x"),
    (f'"Authorization": "Bearer {A24}"', f'"Authorization": "Bearer {RED}"'),
    (f"AUTHORIZATION: {A24}", f"AUTHORIZATION: {RED}"),
    (f"a\n{KEY}\nb", f"a\n{RED}\nb"),
    (KEY[:60], RED),  # an end that was cut off
    (f"日本語 ghp_{A40} 終", f"日本語 {RED} 終"),
    (f"\ud800 ghp_{A40}", f"\ud800 {RED}"),
]


@pytest.mark.parametrize(("text", "clean"), SHAPES)
def test_S070_shapes_of_tokens(text: str, clean: str) -> None:
    assert cleaned(text) == clean


PLAIN = [
    "task-list risk-free sk-short",
    "the Authorization header is required",
    "Authorization: Bearer $TOKEN",
    "eyJ is how a token begins",
    "AKIA",
    "-----BEGIN CERTIFICATE-----\nMIIEpAIBAAKCAQEA75\n-----END CERTIFICATE-----",
    "d2f1c1c8e9a4b5d6e7f8091a2b3c4d5e6f708192",
    "-" * 200,
    "a_very_long_identifier_that_is_no_secret_at_all_test_sk_x",
    "日本語" * 100,
    "",
]


@pytest.mark.parametrize("text", PLAIN)
def test_ordinary_text_stays_the_same_object(text: str) -> None:
    assert redact(text, (), NONCE) is text


KNOWN = [
    ("the key is hunter2hunter2.", ("hunter2hunter2",), f"the key is {RED}."),
    ("abcdefgh-long abcdefgh", ("abcdefgh", "abcdefgh-long"), f"{RED} {RED}"),  # the longer one first
    ("short", ("short", ""), "short"),
    (f"x-{A40}-y", (A40,), f"x-{RED}-y"),
    ("say longrein: secret", ("longrein", f"longrein:{NONCE}"), "say longrein: secret"),  # would eat the marker
]


@pytest.mark.parametrize(("text", "secrets", "clean"), KNOWN)
def test_S070_known_values(text: str, secrets: tuple[str, ...], clean: str) -> None:
    assert cleaned(text, *secrets) == clean


def test_the_users_own_patterns() -> None:
    clean = redactor((), NONCE, (r"acme-\d+", r"pin=(\d+)"))
    assert clean("acme-123 pin=99 ok").count("secret: ") == 2
    assert clean("pin=99").startswith("pin=[longrein:")


def test_the_marker_is_that_of_the_harness_and_tells_secrets_apart() -> None:
    one, two = redact(f"ghp_{A40}", (), NONCE), redact(f"gho_{A40}", (), NONCE)
    digest = one[-9:-1]
    assert one == marker(NONCE, "secret", digest)
    assert one != two
    assert redact(f"ghp_{A40}", (), NONCE) == one
    assert redact(f"ghp_{A40}", (), "other")[-9:-1] != digest


alphabet = st.sampled_from(
    [
        *("ghp_", "sk-", A40, "AKIAIOSFODNN7EXAMPLE", "Authorization: ", "Bearer ", JWT, KEY, "hunter2hunter2"),
        *(" ", "\n", "-", "]", "é", "'", "longrein", NONCE, f"[longrein:{NONCE} secret: ", "0011aabb"),
    ]
)


@given(st.lists(alphabet, max_size=12).map("".join))
def test_redaction_is_idempotent_and_complete(text: str) -> None:
    secrets = ("hunter2hunter2", "0011aabb", NONCE)
    once = redact(text, secrets, NONCE)
    assert redact(once, secrets, NONCE) == once
    assert "hunter2hunter2" not in once
    assert "MIIEpAIBAAKCAQEA75" not in once


@given(st.text(max_size=200), st.sampled_from([text for text, _ in SHAPES]))
def test_the_quick_look_never_misses(around: str, token: str) -> None:
    assert suspicious(f"{around} {token} {around}")


def test_a_clean_text_costs_a_third_of_looking_for_every_shape() -> None:
    """A ratio within one run, since machines differ: about 30 µs beside 180 for these 10 kB."""
    source = (Path(__file__).parents[2] / "src/longrein/events/events.py").read_text()[:10_000]
    clean = redactor(["".join(random.Random(i).choices(string.ascii_letters, k=40)) for i in range(3)], NONCE)
    assert clean(source) is source
    every_shape = re.compile(r"(?<![A-Za-z0-9])(?:sk-|gh[pousr]_|A[KS]IA|AIza|xox[a-s]-|glpat-|npm_|hf_|eyJ)[\w-]{16,}")

    def best(act: Callable[[str], object]) -> float:
        return min(timeit.repeat(lambda: act(source), number=4, repeat=300))  # short, so that one is undisturbed

    assert best(clean) <= best(every_shape.search) / 3


def test_the_file_stands_alone() -> None:
    """The supervisor of processes loads it by its path, without longrein."""
    path = Path(__file__).parents[2] / "src/longrein/events/redact.py"
    for node in ast.walk(ast.parse(path.read_text())):
        for name in [a.name for a in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", None)]:
            assert name is None or name.split(".")[0] in sys.stdlib_module_names
