"""Redaction of secrets (S070): known values and token forms; idempotent; the same after a
resume.
"""

import ast
import base64
import json
import sys
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.source_tree import ENGINE
from longrein_context.events import marker, redactor
from longrein_context.events.redact import TOKENS, redact, secret_forms
from tests.tables import split_words

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


HEX32, HEX40 = "0a1b2c3d" * 4, "0a1b2c3d" * 5
VENDORS = {
    "AWS": ["AKIAIOSFODNN7EXAMPLE", "ASIAIOSFODNN7EXAMPLE", "ABSK" + "a1/+" * 30],
    "GCP": ["AIza" + "x" * 35, "ya29." + A40, "GOCSPX-" + A24],
    "Azure": ["abc8Q~" + "aB3-_.~" * 4 + "aB3x", "1xY8Q~" + "Zz9." * 8],
    "GitHub": [p + A40 for p in ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_11ABCDEFG0_")],
    "GitLab": [p + A24 for p in ("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-")],
    "Slack": [f"xox{c}-123456789012-{A24}" for c in "abcdeprs"] + [f"xapp-1-A0123456789-{A24}"],
    "Stripe": [p + A24 for p in ("sk_live_", "sk_test_", "rk_live_", "whsec_")],
    "OpenAI": ["sk-" + A40, "sk-proj-" + A40, "sk-svcacct-" + A40],
    "Anthropic": ["sk-ant-api03-" + A40, "sk-ant-oat01-" + A40 + "-x_y"],
    "OpenRouter": ["sk-or-v1-" + HEX40],
    "xAI, Groq, Replicate, Perplexity, Tavily": [
        p + A40 for p in ("xai-", "gsk_", "r8_", "pplx-", "tvly-dev-")
    ],
    "Hugging Face": ["hf_" + A40],
    "npm": ["npm_" + A40],
    "PyPI": ["pypi-AgEIcHlwaS5vcmc" + A40],
    "RubyGems, Pulumi": ["rubygems_" + HEX40 + "12345678", "pul-" + HEX40],
    "DigitalOcean": [p + HEX40 + HEX32 for p in ("dop_v1_", "doo_v1_", "dor_v1_")],
    "Twilio": ["SK" + HEX32],
    "SendGrid": [f"SG.{A24[:22]}.{A40}"],
    "Mailgun": ["key-" + HEX32],
    "Shopify": [p + HEX32 for p in ("shpat_", "shpca_", "shppa_", "shpss_")],
    "Discord": ["MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs"],
    "Telegram": ["123456789:AAF" + "aB3-_" * 6 + "xy"],
    "Databricks": ["dapi" + HEX32, "dapi" + HEX32 + "-2"],
    "Vault": ["hvs." + A24, "hvb." + A40],
    "Doppler": ["dp.pt." + A40, "dp.st.dev." + A40],
    "Linear": ["lin_api_" + A40],
    "Notion": ["secret_" + A40, "ntn_" + A40],
    "Figma": ["figd_" + A24 + "_" + A24],
    "Postman": [f"PMAK-{HEX32[:24]}-{HEX40[:34]}"],
    "Heroku": ["HRKU-AA" + A40],
    "New Relic": ["NRAK-" + "A1B2C3D4E" * 3],
    "Sentry": ["sntrys_eyJpYXQiOjE2ODc" + A40],
    "Supabase": ["sbp_" + HEX40, "sb_secret_" + A24],
    "Vercel": ["vcp_" + A24 + A24],
    "Netlify": ["nfp_" + A40],
    "Docker": ["dckr_pat_" + A24 + "-x", "dckr_oat_" + A24],
    "Terraform": ["aB3dE6gH9jK2mN.atlasv1." + A40 + A40],
    "Cloudflare": [f"v1.0-{HEX32[:24]}-{HEX40 * 3}"],
    "Grafana, PlanetScale": ["glsa_" + A40, "glc_" + A40, "pscale_tkn_" + A40],
    "Atlassian": ["ATATT3" + A40],
    "Square, Dynatrace": ["sq0atp-" + A24, f"dt0c01.{'A1B2' * 6}.{'A1B2' * 16}"],
    "CircleCI, Buildkite, PostHog": [p + A40 for p in ("CCIPAT_", "bkua_", "phx_")],
    "age": ["AGE-SECRET-KEY-1" + "QPZRY9X8" * 7],
    "NVIDIA, Cerebras, Contentful": [p + A40 + A24 for p in ("nvapi-", "csk-", "CFPAT-")],
    "Fireworks, LangSmith": [
        "fw_" + A24,
        f"lsv2_pt_{HEX32}_{HEX32[:10]}",
        "lsv2_sk_" + HEX32 + "_0a1b2c3d4e",
    ],
    "1Password": ["ops_eyJ" + A40 * 3],
    "Tailscale": [f"tskey-{kind}-{A24}" for kind in ("auth", "api", "client", "scim")],
    "Brevo": [f"xkeysib-{HEX32}{HEX32}-{A24[:16]}", f"xsmtpsib-{HEX32}{HEX32}"],
    "JFrog": ["AKCp" + A40 + A24, "cmVmdGtu" + A40 + A24],
    "SonarQube": [p + HEX40 for p in ("sqp_", "squ_", "sqa_")],
    "NuGet, crates.io, Clojars": [
        "oy2" + HEX40 + "abc",
        "cio" + A24 + A24[:8],
        "CLOJARS_" + HEX40 + HEX32[:20],
    ],
    "Alibaba, Tencent": ["LTAI" + A24[:20], "AKID" + A24 + A24[:8]],
    "Fly.io, Mapbox": ["fm2_" + A40, "fm1_" + A40, "fo1_" + A40, f"sk.eyJ{A40}.{A24}"],
    "Airtable, Mailchimp": [f"pat{A24[:14]}.{HEX32}{HEX32}", HEX32 + "-us21"],
    "private keys in base64": [
        base64.b64encode(KEY.replace("RSA ", kind).encode()).decode()
        for kind in ("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ")
    ],
    "JSON Web Token": [JWT],
    "private keys": [
        KEY.replace("RSA ", kind) for kind in ("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ", "DSA ")
    ]
    + [KEY.replace("RSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK")],
}
AROUND = [
    "{}",
    "token: {}",
    "x={}\n",
    "'{}',",
    "(see {})",
    "https://h/?t={}&u=1",
    "日本 {} 終",
    "\t{}\r\n",
    "[{}]",
    "`{}`",
]


@pytest.mark.parametrize("vendor", VENDORS)
def test_S070_tokens_of_each_vendor_in_any_place(vendor: str) -> None:
    for token in VENDORS[vendor]:
        for around in AROUND:
            assert cleaned(around.format(token)) == around.format(RED), token


BY_NAME = [
    ("DB_PASSWORD=hunter2x", f"DB_PASSWORD={RED}"),
    ("export PGPASSWORD='only letters'", "export PGPASSWORD='only letters'"),
    ("export MYSQL_PWD='s3cr3t!pw'", f"export MYSQL_PWD='{RED}'"),
    ("PASSWD=correcthorse make", f"PASSWD={RED} make"),
    ("STRIPE_WEBHOOK_SECRET=ab1cd2ef3gh4", f"STRIPE_WEBHOOK_SECRET={RED}"),
    ("API_TOKEN=abcdef123456789 x", f"API_TOKEN={RED} x"),
    ("password: corr3cthorse", f"password: {RED}"),
    ('{"db_password": "corr3cthorse"}', f'{{"db_password": "{RED}"}}'),
    ("//npm.example/:_auth=Ym9iOmh1bnRlcjI=", f"//npm.example/:_auth={RED}"),
    ("machine a.org login bob password hunter2", f"machine a.org login bob password {RED}"),
    ("machine a.org\n  login bob\n  password qwe", f"machine a.org\n  login bob\n  password {RED}"),
    ("default login bob password hunter2", f"default login bob password {RED}"),
    ("\tpassword hunter2\n", f"\tpassword {RED}\n"),
    ('{"auths":{"x":{"auth":"Ym9iOmh1bnRlcjI="}}}', f'{{"auths":{{"x":{{"auth":"{RED}"}}}}}}'),
    (f'"identitytoken": "{A24}"', f'"identitytoken": "{RED}"'),
    ("    client-key-data: TUlJRXBBSUJBQUtDQVFFQTc1", f"    client-key-data: {RED}"),
    ("- name: x\n  user:\n    token: a8f7d6a8f7d6a8f7", f"- name: x\n  user:\n    token: {RED}"),
    ("Set-Cookie: sid=38afes7a8x; Path=/", f"Set-Cookie: sid={RED}; Path=/"),
    ("> Cookie: a=b; sid=38afes7a8x", f"> Cookie: {RED}"),
    ("curl --cookie sid=38afes7a8x http://x", f"curl --cookie sid={RED} http://x"),
    ("a.org\tTRUE\t/\tFALSE\t170\tSID\tabcdefg12", f"a.org\tTRUE\t/\tFALSE\t170\tSID\t{RED}"),
]
HARMLESS = """
    PASSWORD=$(cat x)~PASSWORD=${PASSWORD:-x1234567}~PASSWORD=<your-password>~DB_PASSWORD=changeme1~PASSWORD=~
    password = getpass()~password: string~let password = input1.value~passwordField = form2["password"]~
    password=os.environ["DB_PASSWORD"]~def f(password=None, token=None):~password: process.env.DB_PASSWORD2~
    TOKEN=next(tokens2)~KEY=value~SECRET_NAME=my-secret-name~TOKEN_FILE=/run/secrets/token1~PASSWORD_FILE=/x/y12345~
    the default password callback~Enter the password again2 please~token: TokenType2~"auth": "required"~
    Cookie: banner=off~document.cookie = "a=b"~Set-Cookie: theme=darkmode; Path=/~cookie: CookieJar~
    "token": "identifier"~max_tokens=128000000000~CACHE_KEY=linux-node-modules~print(f"password={password1234}")~
    expect(token).toBe(token12345678)~sort_key=lambda x: x.created_at_2024
"""  # noqa: E501


@pytest.mark.parametrize(("text", "clean"), BY_NAME)
def test_S070_secrets_by_the_name_before_them(text: str, clean: str) -> None:
    assert cleaned(text) == clean
    assert cleaned(f"a\n{text}\nb") == f"a\n{clean}\nb"


@pytest.mark.parametrize("text", [one.strip() for one in HARMLESS.split("~")])
def test_S070_words_of_secrets_in_code_are_left(text: str) -> None:
    assert cleaned(text) == text


def test_every_beginning_has_an_example() -> None:
    """A beginning of the table that no example uses might be misspelt."""
    tokens = [token for tokens in VENDORS.values() for token in tokens]
    missing = {
        w
        for _, words, _ in TOKENS
        for w in words.split()
        if not any(t.startswith(w) for t in tokens)
    }
    assert missing <= {
        *split_words("""
            rk_test_ glft- glsoat- glimt- ABIA ACCA api_org_ hvr. dp.sa. dp.ct. dp.scim.
        """),
        *split_words("""
            dp.audit. lin_oauth_ figo_ NRII- NRJS- NRRA- sntryu_ sntrya_ sntryi_ vci_
        """),
        *split_words("""
            vca_ vcr_ vck_ nfo_ nfc_ pscale_pw_ pscale_oauth_ ATCTT3 ATBB sq0csp- CCIPRJ_
        """),
    }


BLOB = "https://x.blob.core.windows.net/c?sv=1&sig="
SLACK = "https://hooks.slack.com/services/"
DISCORD = "https://discord.com/api/webhooks/123456789012/"
PLACES = [
    ("postgres://app:s3cr3t-Pw@db.internal/x", f"postgres://app:{RED}@db.internal/x"),
    ("https://:tokentoken1@h/", f"https://:{RED}@h/"),
    ("redis://default:pa%40ss1@h:6379", f"redis://default:{RED}@h:6379"),
    ('"amqp://u:abcdef@h"', f'"amqp://u:{RED}@h"'),
    (f"X-Api-Key: {A24}", f"X-Api-Key: {RED}"),
    (f"curl -H 'PRIVATE-TOKEN: {A24}'", f"curl -H 'PRIVATE-TOKEN: {RED}'"),
    (f"Proxy-Authorization: Basic {A24}", f"Proxy-Authorization: Basic {RED}"),
    (f"aws_secret_access_key = {A40[:38]}/+", f"aws_secret_access_key = {RED}"),
    (f"export DD_API_KEY={HEX32}", f"export DD_API_KEY={RED}"),
    (f'"client_secret": "{A40}"', f'"client_secret": "{RED}"'),
    (f"CLOUDFLARE_API_TOKEN={A40}", f"CLOUDFLARE_API_TOKEN={RED}"),
    ("HEROKU_API_KEY=01234567-89ab-cdef-0123-456789abcdef", f"HEROKU_API_KEY={RED}"),
    (f"VERCEL_TOKEN='{A24}'", f"VERCEL_TOKEN='{RED}'"),
    (f"AccountKey={'aB3+' * 21}aB==;Endpoint", f"AccountKey={RED};Endpoint"),
    (f"{BLOB}{'aB3%2B' * 8}", f"{BLOB}{RED}"),
    (f"https://hooks.slack.com/services/T0001/B0001/{A24}", f"{SLACK}{RED}"),
    (f"{DISCORD}{A40}", f"{DISCORD}{RED}"),
]


@pytest.mark.parametrize(("text", "clean"), PLACES)
def test_S070_secrets_by_their_place(text: str, clean: str) -> None:
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
    # of the kind that fills repositories
    "commit d2f1c1c8e9a4b5d6e7f8091a2b3c4d5e6f708192\nAuthor: A <a@b.example>",
    "01234567-89ab-cdef-0123-456789abcdef",
    '"integrity": "sha512-' + "aB3/" * 21 + 'aA=="',
    'hash = "sha256:' + "0a1b" * 16 + '"',
    "data:image/png;base64," + "iVBORw0KGgoAAAANSUhEUgAA" * 20 + "=",
    "cache-key: Linux-pip-0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d",
    "public_key=MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE0123456789",
    "next_page_token: 0a1b2c3d0a1b2c3d0a1b2c3d",
    'api_key = os.environ["OPENAI_API_KEY"]',
    "api_key: ${{ secrets.A_LONG_NAME_OF_A_KEY_2024 }}",
    "client_secret=self.settings.client_secret_2_value_3()",
    "access_token_lifetime_seconds: 3600",
    "https://github.com/a/b@v1.2.3",
    "http://localhost:8080/path@x",
    "https://user@example.com:8080/",
    "postgres://postgres:postgres@localhost/db",
    "postgres://user:password@localhost/db",
    (
        "postgres://user:$PASSWORD@h postgres://u:${PW}@h postgres://u:<password>@h "
        "postgres://u:{pw}@h"
    ),
    "Authorization: Bearer ${GITHUB_TOKEN}",
    "Authorization: Bearer <your-token-here>",
    "authorization=self.make_header(request)",
    (
        "key-value-store-with-a-long-name SKIP_ALL_OF_THESE_TESTS dapi_of_the_service "
        "hf_hub_download_with_retries"
    ),
    (
        "npm_config_registry_of_the_company sk_learn_pipeline_with_a_name "
        "secret_santa_list_of_the_team"
    ),
    "pkg:pypi-jsonschema-specifications-and-more r8_register_of_the_machine",
    "a.very.long.dotted.module.name.that.is.no.token SG.short.name",
    "https://registry.npmjs.org/@babel/core/-/core-7.23.2.tgz#abcdef0123456789abcdef0123456789abcdef01",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJx0123456789abcdefghijklmnopqrstuvwx user@host",
    "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcD\n-----END PUBLIC KEY-----",
]


@pytest.mark.parametrize("text", PLAIN)
def test_ordinary_text_stays_the_same_object(text: str) -> None:
    assert redact(text, (), NONCE) is text


KNOWN = [
    ("the key is hunter2hunter2.", ("hunter2hunter2",), f"the key is {RED}."),
    (
        "abcdefgh-long abcdefgh",
        ("abcdefgh", "abcdefgh-long"),
        f"{RED} {RED}",
    ),  # the longer one first
    ("short", ("short", ""), "short"),
    (f"x-{A40}-y", (A40,), f"x-{RED}-y"),
    (
        "say longrein: secret",
        ("longrein", f"longrein:{NONCE}"),
        "say longrein: secret",
    ),  # would eat the marker
]


@pytest.mark.parametrize(("text", "secrets", "clean"), KNOWN)
def test_S070_known_values(text: str, secrets: tuple[str, ...], clean: str) -> None:
    assert cleaned(text, *secrets) == clean


WRITTEN = 'k3y-with"quotes+and/slash=long-enough' + "\u00fc"
"""A known secret with every character that an encoding writes differently."""


@pytest.mark.parametrize("before", ["", "a", "ab", "abc", "user:", "Bearer "])
@pytest.mark.parametrize("secret", [WRITTEN, "hunter2hunter2-0123456789", "a" * 9 + "Z?>~"])
def test_S070_known_values_as_encodings_write_them(secret: str, before: str) -> None:
    data = (before + secret + "tail").encode()
    for text in (
        base64.b64encode(data).decode(),
        base64.urlsafe_b64encode(data).decode(),
        data.hex(),
        data.hex().upper(),
        quote(data, safe=""),
        quote_plus(data),
        json.dumps(data.decode()),
        json.dumps(data.decode(), ensure_ascii=False),
        base64.encodebytes(b"x" * 45 + data).decode(),
    ):
        out = redact(text, (secret,), NONCE)
        assert out.count("secret: ") == 1, text
        assert not any(form in out for form in secret_forms(secret))
        assert redact(out, (secret,), NONCE) == out


def test_S070_known_values_split_by_line_breaks_and_colours() -> None:
    secret = "hunter2hunter2-0123456789"
    for between in ("\n", "\r\n    ", "\x1b[31m", "\x1b[0m\x1b[1;32m", "\\\n  ", "\n\t"):
        for at in (1, 8, len(secret) - 1):
            text = f"before {secret[:at]}{between}{secret[at:]} after"
            assert cleaned(text, secret) == f"before {RED} after"
        spread = between.join(secret)
        assert cleaned(f"<{spread}>", secret) == f"<{RED}>"


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
        *(
            "ghp_",
            "sk-",
            A40,
            "AKIAIOSFODNN7EXAMPLE",
            "Authorization: ",
            "Bearer ",
            JWT,
            KEY,
            "hunter2hunter2",
        ),
        *(
            " ",
            "\n",
            "-",
            "]",
            "é",
            "'",
            "longrein",
            NONCE,
            f"[longrein:{NONCE} secret: ",
            "0011aabb",
        ),
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
    assert "[longrein:" in redact(f"{around} {token} {around}", (), NONCE)


def test_the_file_stands_alone() -> None:
    """The supervisor of processes loads it by its path, without longrein."""
    path = ENGINE / "events/redact.py"
    for node in ast.walk(ast.parse(path.read_text())):
        for name in (
            [a.name for a in node.names]
            if isinstance(node, ast.Import)
            else [getattr(node, "module", None)]
        ):
            assert name is None or name.split(".")[0] in sys.stdlib_module_names
