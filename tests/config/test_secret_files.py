"""Files that hold secrets, by name and by content; and files that do not."""

import time

import pytest

from longrein.config.secret_detection import has_secret_name, has_secrets

SECRET_NAMES = """
    .env .env.local .ENV .envrc prod.env .env.production.local id_rsa id_ed25519.pub ID_RSA server.pem tls.key store.p12
    key.pem.bak .netrc _netrc .npmrc .pypirc .git-credentials credentials credentials.json aws-credentials.csv
    secrets.yaml secret.toml api_keys.txt service-account.json .ssh/config .aws/config .git/config deep/.kube/x
    terraform.tfstate prod.tfvars .htpasswd passwords.txt passwd shadow vault.kdbx
""".split()  # noqa: E501, SIM905
PLAIN_NAMES = """
    AGENTS.md CLAUDE.md README.md docs/environment.md .env.example .env.sample keys.md src/token.py tokens.ts
    secrets.md key.txt config.yaml .gitignore .github/x.md environment.py monkey.md keyboard.md
""".split()  # noqa: E501, SIM905


def test_names_that_usually_hold_secrets() -> None:
    assert [name for name in SECRET_NAMES if not has_secret_name(f"/repo/{name}")] == []
    assert [name for name in PLAIN_NAMES if has_secret_name(f"/repo/{name}")] == []


@pytest.mark.parametrize(
    "name", ["/r/.e\u200bnv", "/r/.\uff45nv", "/r/ID_RSA", "/r/server.\uff50em"]
)
def test_other_spellings_of_a_name(name: str) -> None:
    assert has_secret_name(name)


@pytest.mark.parametrize(("text", "expected"), [
    ("DB_PASSWORD=hunter22x", True),
    ("  export API_KEY=abcdef123456", True),
    ('"client_secret": "k3j4h5k3j4h5"', True),
    ("postgres://admin:hunter2@db/x", True),
    (f"a ghp_{'a' * 36} b", True),
    ("-----BEGIN RSA PRIVATE KEY-----\nx", True),
    ("Set API_KEY=<your key> before", False),
    ("API_KEY=your-key-here", False),
    ("export TOKEN=$OTHER_TOKEN", False),
    ("The password is in the vault. Token: ask Ann.", False),
    ("see https://example.com/a:b@c", False),
    ("PATH=/usr/bin:/bin", False),
])  # fmt: skip
def test_texts_with_and_without_secrets(text: str, expected: bool) -> None:
    assert has_secrets(f"# Title\n\n{text}\n") is expected


@pytest.mark.parametrize(
    "piece", ["A", "KEY_", "password=", "\n", " ", "a://", "SECRET ", '"token": ']
)
def test_a_megabyte_of_anything_is_searched_in_linear_time(piece: str) -> None:
    began = time.process_time()
    has_secrets(piece * ((1 << 20) // len(piece)))
    assert time.process_time() - began < 20
