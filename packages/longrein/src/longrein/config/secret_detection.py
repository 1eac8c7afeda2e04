"""Recognise files that hold secrets, by name or content, so that instructions never carry one to
a provider.
"""

import re

from longrein_context.events.escape import plain_name
from longrein_context.events.redact import redact

_FOLDERS = frozenset(
    (
        ".git",
        ".ssh",
        ".gnupg",
        ".aws",
        ".azure",
        ".kube",
        ".docker",
        ".password-store",
        ".gcloud",
        ".terraform.d",
    )
)
"""Folders whose files are never instructions; `.git/config` may hold an address with a token."""
_NAMES = r"""(?x)
    \.env (?!\.(example|sample|template|dist|defaults?|schema)$) (rc)? ([._-].*)? | .+\.env (\.local)?
  | id_ (rsa|dsa|ecdsa|ed25519|xmss) .* | ssh_host_.*_key
  | .+ \. (pem|key|p8|p12|pfx|pkcs12|der|jks|keystore|bks|kdbx?|ppk|asc|gpg|pgp|tfstate|tfvars|ovpn|agekey|secrets?)
    (\.(bak|backup|old|orig|txt))?
  | [._]? (netrc|npmrc|yarnrc|pypirc|pgpass|my\.cnf|htpasswd|git-credentials|dockercfg|boto|s3cfg|vault[-_].*)
  | shadow | (.+[._-])? (credentials?|secrets?|passwords?|passwd|tokens?|api[-_]?keys?|service[-_]?accounts?|keyfile)
    ([._-].+)? (?<!\.md) (?<!\.rst) (?<!\.py) (?<!\.ts) (?<!\.js) (?<!\.go) (?<!\.rs)
"""  # noqa: E501
_ASSIGNED = (
    r"(?m)^[ \t]{0,20}(?:export[ \t]{1,5})?[A-Z0-9_]{0,80}"
    r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|PWD)(?:_[A-Z0-9_]{0,40})?"
    r"[ \t]{0,5}=[ \t]{0,5}(\S{6,})"
)
"""A line of an environment file. Repetitions are bounded, so that a search stays linear."""
_QUOTED = (
    r"(?i)(?:password|passwd|passphrase|secret|api[_-]?key|token)[\"']?[ \t]{0,5}[:=][ \t]{0,5}"
    r"[\"']([^\"'\s]{8,200})[\"']"
)
"""A key and its text in JSON, YAML or code."""
_ADDRESS = r"[a-z][a-z0-9+.-]{1,15}://[^\s/:@]{0,100}:([^\s/@]{3,200})@"
"""An address with a password."""
_PLACEHOLDER = r"(?i)your|example|change.?me|xxx|placeholder|dummy|redacted|secret$|password$|\.\.\.|…|[<>${}*]"  # noqa: E501


def has_secret_name(path: str) -> bool:
    """Return whether a file of this path usually holds secrets, such as `.env`, `id_rsa` or
    `server.pem`.

    Case, compatibility forms and invisible characters make no difference.
    """
    *folders, name = plain_name(path).split("/")
    return not _FOLDERS.isdisjoint(folders) or re.compile(_NAMES).fullmatch(name) is not None


def has_secrets(text: str) -> bool:
    """Return whether a text holds a token of a known form, a private key, or a password that is
    written out.
    """
    if redact(text, (), "") != text:
        return True
    shapes = (_ASSIGNED, _QUOTED, _ADDRESS)
    return any(
        not re.compile(_PLACEHOLDER).search(found[1])
        for s in shapes
        for found in re.compile(s).finditer(text)
    )
