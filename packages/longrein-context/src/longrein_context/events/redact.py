"""Redaction of secrets before anything is stored: known secrets, and text in the form of a token.

Imports the standard library only, since the supervisor loads this file by its path. Secrets are
replaced by a marker as in `ids.marker`. Its digest distinguishes secrets; it is salted with the
session's nonce and reveals nothing.
"""

import binascii
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

# --- Forms of a token -----------------------------------------------------------------------------


_HEX32 = r"[0-9a-fA-F]{32}(?![A-Za-z0-9])"
_W = "[A-Za-z0-9_-]"
TOKENS: tuple[tuple[str, str, str], ...] = (
    ("OpenAI, Anthropic, OpenRouter, DeepSeek", "sk-", _W + "{17,}"),
    ("Stripe", "sk_live_ sk_test_ rk_live_ rk_test_ whsec_", "[A-Za-z0-9+/=]{16,}"),
    ("GitHub", "ghp_ gho_ ghu_ ghs_ ghr_", "[A-Za-z0-9]{30,}"),
    ("GitHub, fine-grained", "github_pat_", "[A-Za-z0-9_]{20,}"),
    ("GitLab", "glpat- gldt- glrt- glcbt- glptt- glft- glsoat- glimt-", _W + "{16,}"),
    ("AWS", "AKIA ASIA ABIA ACCA", "[0-9A-Z]{16}(?![A-Za-z0-9])"),
    ("Google", "AIza", _W + "{35}"),
    ("Google OAuth", "ya29. GOCSPX-", _W + "{20,}"),
    ("Slack", "xoxa- xoxb- xoxc- xoxd- xoxe- xoxp- xoxr- xoxs- xapp-", "[A-Za-z0-9-]{15,}"),
    ("Hugging Face", "hf_ api_org_", "[A-Za-z0-9]{30,}"),
    ("npm", "npm_", "[A-Za-z0-9]{30,}"),
    ("PyPI", "pypi-", _W + "(?=[a-z_-]*[A-Z0-9])" + _W + "{15,}"),
    ("xAI, Groq", "xai- gsk_", "[A-Za-z0-9]{20,}"),
    ("Replicate, Perplexity", "r8_ pplx-", "[A-Za-z0-9]{30,}"),
    ("Tavily", "tvly-", _W + "{30,}"),
    ("DigitalOcean", "dop_v1_ doo_v1_ dor_v1_", "[a-f0-9]{40,}"),
    ("Twilio", "SK", "[0-9a-f]{32}(?![A-Za-z0-9])"),
    ("SendGrid", "SG.", _W + r"{16,}\." + _W + "{16,}"),
    ("Mailgun", "key-", _HEX32),
    ("Shopify", "shpat_ shpca_ shppa_ shpss_", _HEX32),
    ("Databricks", "dapi", r"[0-9a-f]{32}(?:-\d)?(?![A-Za-z0-9])"),
    ("HashiCorp Vault", "hvs. hvb. hvr.", _W + "{20,}"),
    (
        "Doppler",
        "dp.pt. dp.st. dp.sa. dp.ct. dp.scim. dp.audit.",
        "[A-Za-z0-9_.-]{0,60}[A-Za-z0-9]{30,}",
    ),
    ("Linear", "lin_api_ lin_oauth_", "[A-Za-z0-9]{32,}"),
    ("Notion", "secret_ ntn_", "[A-Za-z0-9]{40,}"),
    ("Figma", "figd_ figo_", _W + "{20,}"),
    ("Postman", "PMAK-", "[a-f0-9]{24}-[a-f0-9]{30,}"),
    ("Heroku", "HRKU-", _W + "{30,}"),
    ("New Relic", "NRAK- NRII- NRJS- NRRA-", _W + "{19,}"),
    ("Sentry", "sntrys_ sntryu_ sntrya_ sntryi_", "[A-Za-z0-9_+/=-]{20,}"),
    ("Supabase", "sbp_ sb_secret_", _W + "{20,}"),
    ("Vercel", "vcp_ vci_ vca_ vcr_ vck_", "[A-Za-z0-9]{24,}"),
    ("Netlify", "nfp_ nfo_ nfc_", "[A-Za-z0-9]{30,}"),
    ("Docker", "dckr_pat_ dckr_oat_", _W + "{20,}"),
    ("Cloudflare Origin CA", "v1.0-", "[a-f0-9]{24}-[a-f0-9]{100,}"),
    ("Grafana", "glsa_ glc_", "[A-Za-z0-9_+/=]{30,}"),
    ("PlanetScale", "pscale_tkn_ pscale_pw_ pscale_oauth_", _W + "{30,}"),
    ("Pulumi, RubyGems", "pul- rubygems_", "[a-f0-9]{40,}"),
    ("Atlassian", "ATATT3 ATCTT3 ATBB", "[A-Za-z0-9_=-]{28,}"),
    ("Square", "sq0atp- sq0csp-", _W + "{20,}"),
    ("Dynatrace", "dt0c01.", r"[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    ("CircleCI, Buildkite, PostHog", "CCIPAT_ CCIPRJ_ bkua_ phx_", "[A-Za-z0-9_]{30,}"),
    ("age", "AGE-SECRET-KEY-1", "[0-9A-Z]{40,}"),
    ("NVIDIA, Cerebras", "nvapi- csk-", _W + "{40,}"),
    ("Fireworks", "fw_", "[A-Za-z0-9]{20,28}(?![A-Za-z0-9_-])"),
    ("LangSmith", "lsv2_pt_ lsv2_sk_", "[a-f0-9]{32}_[a-f0-9]{8,}"),
    ("1Password", "ops_eyJ", _W + "{100,}"),
    ("Tailscale", "tskey-auth- tskey-api- tskey-client- tskey-scim-", "[A-Za-z0-9-]{20,}"),
    ("Brevo", "xkeysib- xsmtpsib-", "[a-f0-9]{60,}(?:-[A-Za-z0-9]{8,})?"),
    ("Contentful", "CFPAT-", _W + "{40,}"),
    ("JFrog", "AKCp cmVmdGtu", "[A-Za-z0-9]{50,}"),
    ("SonarQube", "sqp_ squ_ sqa_", "[a-f0-9]{40}(?![A-Za-z0-9])"),
    ("NuGet, crates.io", "oy2 cio", "[A-Za-z0-9]{32,43}(?![A-Za-z0-9_-])"),
    ("Clojars", "CLOJARS_", "[a-z0-9]{60}"),
    ("Alibaba, Tencent", "LTAI AKID", "[A-Za-z0-9]{16,32}(?![A-Za-z0-9_-])"),
    ("Fly.io", "fm1_ fm2_ fo1_", "[A-Za-z0-9+/=_-]{40,}"),
    ("Mapbox", "sk.eyJ", _W + r"{40,}\." + _W + "{20,}"),
    ("Airtable", "pat", r"[A-Za-z0-9]{14}\.[a-f0-9]{64}"),
    (
        "private key in base64",
        (
            "LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVk LS0tLS1CRUdJTiBFQyBQUklWQVRFIEtFWS "
            "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS LS0tLS1CRUdJTiBPUEVOU1NIIFBSSVZBVEUgS0VZ "
            "LS0tLS1CRUdJTiBFTkNSWVBURUQgUFJJVkFURSBLRVk"
        ),
        "[A-Za-z0-9+/]{20,}={0,2}",
    ),
    ("JSON Web Token", "eyJ", _W + r"{17,}\.eyJ" + _W + r"{4,}\." + _W + "{4,}"),
)
"""(vendor, literal beginnings, pattern of the rest). Every such token has a run of `_RUN_MIN`
characters of a word.
"""
_UNPREFIXED = (
    r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}",  # Discord
    r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{60,}",  # Terraform
    r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])",  # Telegram
    r"[a-f0-9]{32}-us[0-9]{1,2}(?![A-Za-z0-9_-])",  # Mailchimp
)


_UNPREFIXED_BEGINS = (
    r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.",
    r"[A-Za-z0-9]{14}\.atlasv1\.",
    r"AA[A-Za-z0-9_-]{33}[^A-Za-z0-9_-]",
    r"[a-f0-9]{32}-us[0-9]",
)
"""The same for the fast test, which sees one word after the other."""


@cache
def _token() -> str:
    """Return the pattern of a token."""
    branches = (f"(?:{_alternatives(words)}){rest}" for _, words, rest in TOKENS)
    return "(?<![A-Za-z0-9])(?:" + "|".join((*branches, *_UNPREFIXED)) + ")"


def _alternatives(words: str) -> str:
    return "|".join(map(re.escape, words.split()))


def beginnings() -> list[str]:
    """Return the literal beginnings of tokens."""
    return [word for _, words, _ in TOKENS for word in words.split()]


@cache
def _beginning() -> bytes:
    """Return the pattern of the fast test: a beginning after a boundary, grouped by first letter
    for the search and by what follows for the compiler.
    """
    groups: dict[str, dict[str, list[str]]] = {}
    for _, words, rest in TOKENS:
        follows = rest[: rest.index("]") + 1] + "{8}"
        for word in words.split():
            groups.setdefault(word[0], {}).setdefault(follows, []).append(re.escape(word[1:]))
    branches = []
    for first, group in groups.items():
        rests = (f"(?:{'|'.join(ends)}){follows}" for follows, ends in group.items())
        branches.append(f"{first}(?:{'|'.join(rests)})")
    return (
        f"[^A-Za-z0-9](?:(?=[{''.join(groups)}])(?:{'|'.join(branches)})|"
        + "|".join(_UNPREFIXED_BEGINS)
        + ")"
    ).encode()


# --- Secrets by their place -----------------------------------------------------------------------


_NO_PLACEHOLDER = r"(?![$<{%*\[])"
_HEADER = (
    r"(?i:(?:authorization|x-api-key|x-goog-api-key|api-key|private-token|x-auth-token|x-vault-token)"
    r"[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:(?:bearer|basic|token|digest|ssws)\s{1,3}|(?=[^\s\"']{0,200}\d)))"
    rf"{_NO_PLACEHOLDER}([^\s\"'\[\]()]{{8,}})"
)
_ASSIGNED = (
    r"(?i:(?:api|auth|access|secret|private|client|bot|session|refresh|account|sharedaccess|accesskey|app|deploy|"
    r"vercel|netlify|heroku|cloudflare|cf|okta|dd|datadog)[_-]?(?:key|token|secret)"
    r"[\"']?[ \t]{0,3}[:=]>?[ \t]{0,3}[\"']?)"
    r"(?=[^\s\"']{0,100}\d[^\s\"']{0,100}\d)(?=[^\s\"']{0,100}[A-Za-z])([A-Za-z0-9/+_~-]{20,}={0,2})(?![\w.(\[])"
)
_URL = (
    r"://(?P<user>[^\s/?#@:\"'<>]{0,200}):"
    r"(?![$<{%*\[]|(?P=user)@|(?:password|passwd|pass|pwd|pw|secret|test|example|changeme|xxx+|\.\.\.)@)"
    r"(?P<s>[^\s/@\"'<>]{3,200})@"
)
_WEBHOOK = r"(?:hooks\.slack\.com/services/|discord(?:app)?\.com/api/webhooks/[0-9]{5,25}/)(?P<s>[A-Za-z0-9/_-]{20,})"  # noqa: E501
_SIGNATURE = r"[?&]sig=(?P<s>[A-Za-z0-9%+/]{30,}={0,2})"
_BEGIN_KEY = r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_KEY = (
    rf"{_BEGIN_KEY}(?:[\s\S]*?-----END [A-Z ]{{0,40}}PRIVATE KEY(?: BLOCK)?-----|"
    r"[^\S\n]*(?:\n[^\s]*(?=\s*?(?:\n|\Z)))*)"
)
_AZURE = r"(?<![A-Za-z0-9_~.-])[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}(?![A-Za-z0-9])"
_BEDROCK = r"(?<![A-Za-z0-9])ABSK[A-Za-z0-9+/]{100,}={0,2}"
_INERT = (
    r"(?![$<{%*\[(-]|(?i:your|my|the|changeme|change[_-]me|example|placeholder|dummy|redacted|none|null|true|false"
    r"|test|password|passwd|secret|token|string|required|optional|x{3}|process\.|os\.|env|get|self\.))"
)
"""What is no secret although its name says so."""
_DIGIT_AND_LETTER = r"(?=[^\s\"']{0,100}\d)(?=[^\s\"']{0,100}[A-Za-z])"
_END_OF_WORD = r"(?![\w.(\[{<$])"
_VARIABLE = (
    r"(?m)(?:^|[\s;\"'])(?:[A-Z0-9]{1,40}_){0,6}(?:PASSWORD|PASSWD|PASSPHRASE|PASS|PWD)=[\"']?"
    rf"{_INERT}(?![./~])(?P<s>[^\s\"'`;|&<>(){{}}\[\]$\\]{{6,200}}+){_END_OF_WORD}"
)
"""`DB_PASSWORD=…` of an environment file or a command line."""
_VARIABLE_TOKEN = (
    r"(?m)(?:^|[\s;\"'])(?:[A-Z0-9]{1,40}_){0,6}(?:SECRET|TOKEN|KEY|CREDENTIALS?)=[\"']?"
    rf"{_INERT}{_DIGIT_AND_LETTER}(?![./~])(?P<s>[A-Za-z0-9+/=_~.:!@#%^*-]{{12,4000}}+){_END_OF_WORD}"
)
_PASSWORD = (
    r"(?i:(?<![a-z])(?:[a-z0-9]{1,20}[_.-]){0,3}(?:password|passwd|passphrase|client-key-data|_auth))"
    r"[\"']?[ \t]{0,3}[:=][ \t]{0,3}(?:[\"']|(?![A-Za-z_]\w{0,80}\.[A-Za-z_]))"
    rf"{_INERT}{_DIGIT_AND_LETTER}(?P<s>[^\s\"'`;,|&<>(){{}}\[\]$\\]{{8,8000}}+){_END_OF_WORD}"
)
"""`password: …` of YAML, INI or JSON."""
_NETRC = (
    r"(?:^|\s)(?:machine\s{1,9}\S{1,200}|default(?=\s{1,9}login\s))"
    r"(?:\s{1,9}(?:login|account)\s{1,9}\S{1,200}){0,2}"
    r"\s{1,9}password\s{1,9}(?P<s>[^\s\[]\S{2,200})"
)
_NETRC_LINE = rf"(?m)^[ \t]*password[ \t]{{1,9}}{_DIGIT_AND_LETTER}(?P<s>[^\s\[]{{6,200}})[ \t]*$"
"""The same line of its own, as a stream sees it."""
_DOCKER = (
    r"\"(?:auth|identitytoken|registrytoken)\"\s{0,3}:\s{0,3}\"(?=[^\"]{0,100}[0-9=])"
    r"(?P<s>[A-Za-z0-9+/._-]{12,8000}={0,2})\""
)
_KUBE = (
    r"(?m)^[ \t-]{2,40}(?:token|id-token|refresh-token|access-token):[ \t]{1,3}[\"']?"
    rf"{_INERT}{_DIGIT_AND_LETTER}(?P<s>[A-Za-z0-9._~+/=:-]{{16,8000}}+){_END_OF_WORD}"
)
_COOKIE = (
    r"(?i:(?<![a-z-])cookie)[\"']?\s{0,2}:\s{0,2}[\"']?(?=[^\r\n\"']{0,2000}\d)"
    rf"(?P<s>[\w.-]{{1,80}}={_INERT}[^\r\n\"'\[\]<>{{}}]{{6,8000}})"
)
_SET_COOKIE = (
    r"(?i:set-cookie[\"']?\s{0,2}:|--cookie[ =])\s{0,2}[\"']?"
    rf"[\w.-]{{1,80}}={_INERT}{_DIGIT_AND_LETTER}(?P<s>[^\s;\"',\[\]<>{{}}]{{8,8000}})"
)
_COOKIE_FILE = (
    r"\t(?:TRUE|FALSE)\t/[^\t\n]{0,200}\t(?:TRUE|FALSE)\t\d{1,20}\t[^\t\n]{1,200}\t"
    r"(?P<s>[^\s\[]{8,8000})"
)
_SEPARATED = rb"[\"']?\s{0,3}[:=]>?\s{0,3}[\"']?[^\s\"'\[\]()]{5}"
_PLACES: tuple[tuple[str, bytes, tuple[bytes, ...]], ...] = (
    (_KEY, rb"-----", (b"private key", b"private key block")),
    (
        _HEADER,
        _SEPARATED,
        (b"authorization", b"api-key", b"vate-token", b"auth-token", b"vault-token"),
    ),
    (
        _ASSIGNED,
        rb"[\"']?[ \t]{0,3}[:=]>?[ \t]{0,3}[\"']?[a-z0-9/+_~-]{20}",
        (b"key", b"token", b"secret"),
    ),
    (_URL, rb"[^\s/?#@:\"'<>]{0,200}:[^\s/@\"'<>]{3,200}@", (b"://",)),
    (_AZURE, rb"[a-z0-9_~.-]{31}", (b"q~",)),
    (_BEDROCK, rb"[a-z0-9+/]{100}", (b"absk",)),
    (_WEBHOOK, rb"[0-9a-z/]{8}", (b"hooks.slack.com/services/", b"/api/webhooks/")),
    (_SIGNATURE, rb"[a-z0-9%+/]{30}", (b"?sig=", b"&sig=")),
    (
        _VARIABLE,
        rb"=[\"']?[^\s\"'`;|&<>(){}\[\]$\\]{6}",
        (b"password", b"passwd", b"passphrase", b"_pass", b"_pwd"),
    ),
    (
        _VARIABLE_TOKEN,
        rb"=[\"']?[a-z0-9+/=_~.:!@#%^*-]{12}",
        (b"secret", b"token", b"_key", b"credential", b"credentials"),
    ),
    (
        _PASSWORD,
        rb"[\"']?[ \t]{0,3}[:=][ \t]{0,3}[\"']?[^\s\"'`;,|&<>(){}\[\]$\\]{8}",
        (b"password", b"passwd", b"passphrase", b"client-key-data", b"_auth"),
    ),
    (_NETRC, rb"\s{1,9}\S{3}", (b" password", b"\npassword", b"\tpassword")),
    (_NETRC_LINE, rb"[ \t]{1,9}\S{6,200}[ \t]*(?:\n|\Z)", (b"password",)),
    (
        _DOCKER,
        rb"\s{0,3}:\s{0,3}\"[a-z0-9+/._-]{12}",
        (b'"auth"', b'"identitytoken"', b'"registrytoken"'),
    ),
    (_KUBE, rb"[ \t]{1,3}[\"']?[a-z0-9._~+/=:-]{16}", (b"token:",)),
    (_COOKIE, rb"[\"']?\s{0,2}:\s{0,2}[\"']?[\w.-]{1,80}=", (b"cookie",)),
    (_SET_COOKIE, rb"[\"']?[\s:=]{1,4}[\"']?[\w.-]{1,80}=", (b"set-cookie", b"--cookie")),
    (_COOKIE_FILE, rb"/[^\t\n]{0,200}\t(?:true|false)\t", (b"\ttrue\t", b"\tfalse\t")),
)
"""(pattern, fast test in lower case: what follows one of the literals). Leading literals are
fast to search for.
"""
_STEMS = (
    b"key", b"token", b"secret", b"pass", b"auth", b"cookie", b"credential", b"://", b"q~", b"absk",
    b"hooks", b"sig=", b"_pwd", b"\ttrue\t", b"\tfalse\t",
)  # fmt: skip
"""Each of the literals holds one of these, so that a text without them is passed over fast."""


@cache
def _literals() -> list[tuple[bytes, bytes]]:
    """Return each literal of `_PLACES` once, behind its stem."""
    literals = {word for _, _, words in _PLACES for word in words}
    return [(next(s for s in _STEMS if s in word), word) for word in sorted(literals)]


PLACE_WORDS = (
    "authorization",
    "api-key",
    "-token",
    "_key",
    "_token",
    "_secret",
    "apikey",
    "accountkey",
    "://",
    "sig=",
    "password=",
    'password"',
    "passwd=",
    "passphrase=",
    "cookie:",
    "_pass=",
    "_pwd=",
    '"auth"',
    "token=",
    "secret=",
    "client-key-data",
)
"""Words after which a stream holds its line back: a secret may follow. A prompt such as
`Password: ` is seen at once.
"""


# --- Known secrets --------------------------------------------------------------------------------


SECRET_CHARS_MIN = (
    8  # Minimum length of a secret: replacing a shorter value would garble ordinary text
)
SPLIT_CHARS_MIN = (
    12  # Minimum length of a form that is also found with line breaks and colours inside it
)
_BLANK = b" \t\r\n\\"
_COLOUR = rb"\x1b\[[0-?]*[ -/]*[@-~]"
_BETWEEN = r"(?:[ \t\r\n\\]|\x1b\[[0-?]*[ -/]*[@-~])*"


def secret_forms(secret: str) -> tuple[str, ...]:
    """Return a known secret as written by itself, in base64 at each alignment, hexadecimal, URL and
    JSON escapes.

    Of base64 only the characters that the secret alone decides.
    """
    data = secret.encode("utf-8", "surrogatepass")
    forms = [secret, data.hex(), data.hex().upper(), *_base64_forms(data)]
    percent = "".join(
        chr(b) if chr(b).isascii() and (chr(b).isalnum() or b in b"-._~") else f"%{b:02X}"
        for b in data
    )
    forms += [percent, percent.replace("%20", "+")]
    if not (secret.isascii() and secret.isprintable()) or '"' in secret or "\\" in secret:
        import json

        forms += [json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]]
    return tuple(form for form in dict.fromkeys(forms) if len(form) >= SECRET_CHARS_MIN)


def _base64_forms(data: bytes) -> Iterator[str]:
    for before in range(3):
        text = binascii.b2a_base64(bytes(before) + data, newline=False).decode()
        core = text[(before * 8 + 5) // 6 : (before + len(data)) * 8 // 6]
        yield core
        yield core.replace("+", "-").replace("/", "_")


def squeezed(data: bytes) -> bytes:
    """Return `data` without blanks, line breaks, backslashes and colours: what may split a
    secret.
    """
    if b"\x1b" in data:
        data = re.sub(_COLOUR, b"", data)
    return data.translate(None, _BLANK)


def split_tail(text: str, forms: Sequence[str], size_max: int) -> int:
    """Return the length of the end of `text` that may begin a form with blanks or colours inside
    it; 0 if none.

    Only a beginning of `SECRET_CHARS_MIN` characters counts, so that prompts are seen at once.
    """
    tail = text[-size_max:]
    if not any(char in tail for char in " \t\r\n\\\x1b"):
        return 0
    places = [n for n, char in _visible_chars(tail)]
    tight = "".join(tail[n] for n in places)
    sizes = (overlap(tight, _tight(form)) for form in forms)
    most = max((size for size in sizes if size >= SECRET_CHARS_MIN), default=0)
    return len(tail) - places[len(places) - most] if most else 0


def split_start(text: str, at: int, forms: Sequence[str], size_max: int) -> int:
    """Return where a form with blanks or colours inside it begins that a cut at `at` would
    split, else `at`.
    """
    first = max(0, at - size_max)
    around = text[first : at + size_max]
    tight = squeezed(_bytes(around))
    for form in forms:
        if len(form) >= SPLIT_CHARS_MIN and squeezed(_bytes(form)) in tight:
            for match in re.finditer(_split_pattern(form), around):
                if match.start() < at - first < match.end():
                    return first + match.start()
    return at


def overlap(text: str, word: str) -> int:
    """Return the length of the end of `text` that is the beginning, not the whole, of `word`."""
    at = text.find(word[:1], max(0, len(text) - len(word) + 1)) if word else -1
    while at >= 0 and not word.startswith(text[at:]):
        at = text.find(word[0], at + 1)
    return len(text) - at if at >= 0 else 0


def _visible_chars(text: str) -> Iterator[tuple[int, str]]:
    """Yield (place, character) of what `squeezed` keeps; an unfinished colour at the end is left
    out too.
    """
    colours = {
        n
        for match in re.finditer(r"\x1b(?:\[[0-?]*[ -/]*(?:[@-~]|\Z)|\Z)", text)
        for n in range(*match.span())
    }
    for n, char in enumerate(text):
        if n not in colours and char not in " \t\r\n\\":
            yield n, char


def _tight(form: str) -> str:
    return squeezed(_bytes(form)).decode("utf-8", "surrogatepass")


def _split_pattern(form: str) -> str:
    return _BETWEEN.join(re.escape(char) for char in form if char not in _BLANK.decode())


# --- Redaction ------------------------------------------------------------------------------------


_RUN_MIN = (
    20  # Every token form above has at least this many consecutive letters, digits, `_` and `-`
)
_MASK = bytes(
    0x61 if chr(b).isascii() and (chr(b).isalnum() or b in b"_-") else 0x20 for b in range(256)
)
_WORDS = bytes(
    b if chr(b).isascii() and (chr(b).isalnum() or b in b"_-.~") else 0x20 for b in range(256)
)
_RUN = b"a" * _RUN_MIN
_PASSES_MAX = 4
"""Maximum number of passes: a replacement can uncover an adjacent token. More than two have not
been seen.
"""


def redactor(
    secrets: Sequence[str], nonce: str, patterns: Sequence[str] = ()
) -> Callable[[str], str]:
    """Return a function that replaces secrets in a text by markers; it returns the same object
    without secrets.

    `secrets`: known values, found in each of their `secret_forms`. `patterns`: the user's own
    regular expressions. Idempotent, and deterministic for a nonce, so that a resumed session stores
    the same bytes.
    """
    frame = f"[longrein:{nonce} secret: "
    known = known_forms(secrets, frame)
    split = [
        (tight, form) for form in known if len(tight := squeezed(_bytes(form))) >= SPLIT_CHARS_MIN
    ]
    own = [re.compile(pattern) for pattern in patterns]

    def marked(secret: str) -> str:
        import hashlib  # it loads OpenSSL: not for help

        digest = hashlib.sha256(
            (nonce + known.get(secret, secret)).encode("utf-8", "surrogatepass")
        ).hexdigest()
        return f"{frame}{digest[:8]}]"

    def redact(text: str) -> str:
        for secret in known:
            if secret in text:
                text = text.replace(secret, marked(secret))
        if split and ("\n" in text or "\x1b" in text):
            tight = squeezed(_bytes(text))
            for needle, secret in split:
                if needle in tight:
                    text = re.compile(_split_pattern(secret)).sub(marked(secret), text)
        for pattern in own:
            text = _outside(pattern, text, frame, marked)
        shapes = _suspects(text)
        return _tokens_out(text, shapes, frame, marked) if shapes else text

    return redact


def known_forms(secrets: Sequence[str], frame: str = "") -> dict[str, str]:
    """Return each form of each known secret with the secret, the longest form first; none that
    is part of `frame`.
    """
    pairs = {
        form: s
        for s in secrets
        if len(s) >= SECRET_CHARS_MIN and s not in frame
        for form in secret_forms(s)
    }
    return dict(
        sorted(
            ((f, s) for f, s in pairs.items() if f not in frame), key=lambda p: (-len(p[0]), p[0])
        )
    )


def redact(text: str, secrets: Sequence[str], nonce: str) -> str:
    """Replace secrets in `text`. For many texts use one `redactor`."""
    return redactor(secrets, nonce)(text)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _suspects(text: str) -> list[str]:
    """Return the patterns that may match in `text`, in about 10 ms per MB of source code."""
    data = _bytes(text)
    found = []
    if b":" in data or b"=" in data or len(data) >= 12:
        low = data.lower()
        present = {stem for stem in _STEMS if stem in low}
        held = {word for stem, word in _literals() if stem in present and word in low}
        for pattern, after, words in _PLACES if held else ():
            if any(
                word in held and re.compile(re.escape(word) + after).search(low) for word in words
            ):
                found.append(pattern)
    if _RUN in data.translate(_MASK):
        long = b" ".join({word for word in data.translate(_WORDS).split() if len(word) >= _RUN_MIN})
        if re.compile(_beginning()).search(b" " + long + b" "):
            found.append(_token())
    return found


def _tokens_out(text: str, shapes: Sequence[str], frame: str, marked: Callable[[str], str]) -> str:
    for _ in range(_PASSES_MAX):
        before = text
        for shape in shapes:
            text = _outside(re.compile(shape), text, frame, marked)
        if text == before:
            break
    return text


def _outside(pattern: re.Pattern[str], text: str, frame: str, marked: Callable[[str], str]) -> str:
    """Replace matches of `pattern`, or of group `s` or else its first group if it has one,
    except inside a marker.
    """
    group: int | str = 1 if pattern.groups else 0
    if "s" in pattern.groupindex:
        group = "s"

    def replaced(match: re.Match[str]) -> str:
        one = group if match[group] is not None else 0
        secret = match[one]
        if not secret or secret.startswith("[longrein:"):
            return match[0]
        start, end = match.start(one) - match.start(), match.end(one) - match.start()
        return match[0][:start] + marked(secret) + match[0][end:]

    pieces = re.split("(" + re.escape(frame) + r"[0-9a-f]{8}\])", text)
    return "".join(
        piece if i % 2 else pattern.sub(replaced, piece) for i, piece in enumerate(pieces)
    )
