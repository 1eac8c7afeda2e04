"""Files and folders in which programs keep passwords, tokens and keys, wherever variables move
them.

Commands in the sandbox do not see them, also where the settings or the search path make the folder
around them visible.
"""

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Place(NamedTuple):
    """Secrets of one program below one folder."""

    folder: str
    """Usual folder, below the home; it may begin with a variable of XDG."""
    names: tuple[str, ...]
    """Files and folders in it; `*` stands for one name. '' is the folder itself."""
    variable: str = ""
    """Variable that names another folder."""


XDG = {
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_CACHE_HOME": ".cache",
    "XDG_STATE_HOME": ".local/state",
}
"""Variable -> usual folder below the home. https://specifications.freedesktop.org/basedir-spec/"""
CONFIG = "XDG_CONFIG_HOME"
DATA = "XDG_DATA_HOME"
CACHE = "XDG_CACHE_HOME"

PLACES = (
    # longrein itself: keys of providers
    Place(f"{CONFIG}/longrein", ("credentials.json",)),
    Place("Library/Application Support/longrein", ("credentials.json",)),
    # https://git-scm.com/docs/git-credential-store
    Place("", (".git-credentials",)),
    Place(f"{CONFIG}/git", ("credentials",)),
    # https://everything.curl.dev/usingcurl/netrc.html
    Place("", (".netrc", "_netrc", ".authinfo", ".authinfo.gpg")),
    # https://man.openbsd.org/ssh#FILES, https://gnupg.org/documentation/manuals/gnupg/
    Place("", (".ssh",)),
    Place(".gnupg", ("",), "GNUPGHOME"),
    # https://www.passwordstore.org/, https://wiki.gnome.org/Projects/GnomeKeyring
    Place(".password-store", ("",), "PASSWORD_STORE_DIR"),
    Place(f"{DATA}/keyrings", ("",)),
    # https://doc.rust-lang.org/cargo/reference/config.html#credentials
    Place(".cargo", ("credentials", "credentials.toml"), "CARGO_HOME"),
    # https://docs.npmjs.com/cli/configuring-npm/npmrc, https://pnpm.io/npmrc
    Place("", (".npmrc",)),
    Place(f"{CONFIG}/pnpm", ("rc", "auth.ini")),
    # https://yarnpkg.com/configuration/yarnrc, https://bun.sh/docs/install/registries
    Place("", (".yarnrc", ".yarnrc.yml", ".yarn/.npmrc", ".bunfig.toml")),
    Place(f"{CONFIG}", (".bunfig.toml",)),
    # https://pip.pypa.io/en/stable/topics/configuration/
    Place("", (".pip/pip.conf",)),
    Place(f"{CONFIG}/pip", ("pip.conf",)),
    # https://packaging.python.org/en/latest/specifications/pypirc/
    Place("", (".pypirc",)),
    # https://python-poetry.org/docs/configuration/
    Place(f"{CONFIG}/pypoetry", ("auth.toml",), "POETRY_CONFIG_DIR"),
    # https://docs.astral.sh/uv/concepts/authentication/http/
    Place(f"{DATA}/uv/credentials", ("",), "UV_CREDENTIALS_DIR"),
    # https://docs.conda.io/projects/conda/en/latest/user-guide/configuration/use-condarc.html
    Place("", (".condarc", ".conda/.condarc", ".mambarc")),
    Place(f"{CONFIG}/conda", (".condarc", "condarc")),
    # https://www.anaconda.com/docs/tools/anaconda-org/user-guide/work-with-accounts
    Place("", (".continuum/anaconda-client/tokens",)),
    Place(f"{DATA}/anaconda-client/tokens", ("",)),
    # https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
    Place(f"{CACHE}/huggingface", ("token", "stored_tokens"), "HF_HOME"),
    Place(".huggingface", ("token",)),
    # https://github.com/Kaggle/kaggle-api/blob/main/docs/README.md
    Place(".kaggle", ("kaggle.json", "access_token"), "KAGGLE_CONFIG_DIR"),
    Place(f"{CONFIG}/kaggle", ("kaggle.json",)),
    # https://learn.microsoft.com/en-us/nuget/consume-packages/configuring-nuget-behavior
    Place("", (".nuget/NuGet.Config", ".nuget/NuGet/NuGet.Config", ".nuget/config")),
    Place(f"{CONFIG}/NuGet", ("NuGet.Config", "config")),
    Place(f"{DATA}/MicrosoftCredentialProvider", ("",)),
    # https://learn.microsoft.com/en-us/aspnet/core/security/app-secrets
    Place("", (".microsoft/usersecrets", ".dotnet/corefx", ".aspnet/DataProtection-Keys")),
    # https://www.scala-sbt.org/1.x/docs/Publishing.html
    Place(
        ".sbt",
        (".credentials", "credentials", "*/credentials.sbt", "*/plugins/credentials.sbt"),
    ),
    # https://ant.apache.org/ivy/history/latest-milestone/configuration/credentials.html
    Place(".ivy2", (".credentials", "credentials", ".credentials_*")),
    # https://get-coursier.io/docs/other-credentials
    Place(f"{CONFIG}/coursier", ("credentials.properties",), "COURSIER_CONFIG_DIR"),
    # https://maven.apache.org/settings.html, https://maven.apache.org/guides/mini/guide-encryption.html
    Place(".m2", ("settings.xml", "settings-security.xml", "settings-security4.xml")),
    # https://docs.gradle.org/current/userguide/build_environment.html
    Place(".gradle", ("gradle.properties", "gradle.encryption.key"), "GRADLE_USER_HOME"),
    # https://cabal.readthedocs.io/en/stable/config.html
    Place(".cabal", ("config", "packages/*/credentials"), "CABAL_DIR"),
    Place(f"{CONFIG}/cabal", ("config",)),
    # https://docs.haskellstack.org/en/stable/commands/upload_command/
    Place(".stack", ("upload/credentials.json",), "STACK_ROOT"),
    # https://pkgdocs.julialang.org/v1/environments/, https://github.com/JuliaComputing/PkgAuthentication.jl
    Place(".julia", ("servers/*/auth.toml",), "JULIA_DEPOT_PATH"),
    # https://guides.rubygems.org/command-reference/#gem-signin
    Place("", (".gem/credentials", ".gemrc")),
    Place(f"{DATA}/gem", ("credentials",)),
    # https://bundler.io/man/bundle-config.1.html
    Place(".bundle", ("config",), "BUNDLE_USER_HOME"),
    # https://hexdocs.pm/hex/Mix.Tasks.Hex.Config.html
    Place(".hex", ("hex.config",), "HEX_HOME"),
    Place(f"{CONFIG}/hex", ("hex.config",)),
    # https://dart.dev/tools/pub/cmd/pub-token
    Place(".pub-cache", ("credentials.json",), "PUB_CACHE"),
    Place(f"{CONFIG}/dart", ("pub-credentials.json", "pub-tokens.json")),
    # https://getcomposer.org/doc/articles/authentication-for-private-packages.md
    Place(".composer", ("auth.json",), "COMPOSER_HOME"),
    Place(f"{CONFIG}/composer", ("auth.json",)),
    # https://leiningen.org/deploy.html, https://docs.conan.io/2/reference/commands/remote.html
    Place(".lein", ("profiles.clj", "credentials.clj.gpg", "credentials.clj"), "LEIN_HOME"),
    Place(".conan2", ("credentials.json", ".conan.db"), "CONAN_HOME"),
    # https://developer.android.com/tools/adb
    Place(".android", ("adbkey",), "ANDROID_USER_HOME"),
    # https://docs.docker.com/reference/cli/docker/login/
    Place(".docker", ("config.json",), "DOCKER_CONFIG"),
    # https://man.archlinux.org/man/containers-auth.json.5, https://helm.sh/docs/helm/helm/
    Place(f"{CONFIG}/containers", ("auth.json",)),
    Place(f"{CONFIG}/helm", ("registry/config.json", "repositories.yaml"), "HELM_CONFIG_HOME"),
    # https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
    Place(".kube", ("config", "cache/oidc-login")),
    # https://cli.github.com/manual/gh_help_environment, https://gitlab.com/gitlab-org/cli
    Place(f"{CONFIG}/gh", ("hosts.yml",), "GH_CONFIG_DIR"),
    Place(f"{CONFIG}/glab-cli", ("config.yml",), "GLAB_CONFIG_DIR"),
    Place(f"{CONFIG}/hub", ("",)),
    # https://docs.aws.amazon.com/cli/latest/userguide/cli-configure-files.html
    Place(".aws", ("",)),
    Place("", (".boto", ".s3cfg")),
    # https://cloud.google.com/sdk/docs/configurations
    Place(f"{CONFIG}/gcloud", ("",), "CLOUDSDK_CONFIG"),
    # https://learn.microsoft.com/en-us/cli/azure/azure-cli-configuration
    Place(".azure", ("",), "AZURE_CONFIG_DIR"),
    # https://developer.hashicorp.com/terraform/cli/config/config-file
    Place("", (".terraformrc", ".terraform.d/credentials.tfrc.json", ".vault-token")),
    # https://www.pulumi.com/docs/iac/cli/environment-variables/
    Place(".pulumi", ("credentials.json",), "PULUMI_HOME"),
    # https://docs.digitalocean.com/reference/doctl/, https://fly.io/docs/flyctl/, https://rclone.org/docs/
    Place(f"{CONFIG}/doctl", ("config.yaml",)),
    Place(".fly", ("config.yml",), "FLY_CONFIG_DIR"),
    Place(f"{CONFIG}/rclone", ("rclone.conf",)),
    # https://vercel.com/docs/cli/global-options, https://developers.cloudflare.com/workers/wrangler/
    Place(f"{DATA}/com.vercel.cli", ("auth.json",)),
    Place(f"{CONFIG}/.wrangler", ("config/default.toml",)),
    # https://www.postgresql.org/docs/current/libpq-pgpass.html, https://dev.mysql.com/doc/refman/8.4/en/option-files.html
    Place("", (".pgpass", ".my.cnf", ".mylogin.cnf")),
    # https://docs.claude.com/en/docs/claude-code/iam, https://developers.openai.com/codex/auth
    Place(".claude", (".credentials.json",), "CLAUDE_CONFIG_DIR"),
    Place(".codex", ("auth.json",), "CODEX_HOME"),
    # https://opencode.ai/docs/providers, https://github.com/google-gemini/gemini-cli
    Place(f"{DATA}/opencode", ("auth.json",)),
    Place(".gemini", ("oauth_creds.json",)),
    Place(f"{CONFIG}/github-copilot", ("hosts.json", "apps.json")),
)  # fmt: skip
"""Each with the page that documents it."""

FILES_OF_VARIABLES = (
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "BOTO_CONFIG",
    "BUNDLE_USER_CONFIG",
    "CABAL_CONFIG",
    "CONDARC",
    "GEMRC",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "HELM_REGISTRY_CONFIG",
    "HF_TOKEN_PATH",
    "KUBECONFIG",
    "MYSQL_TEST_LOGIN_FILE",
    "NETRC",
    "NPM_CONFIG_USERCONFIG",
    "PGPASSFILE",
    "PIP_CONFIG_FILE",
    "RCLONE_CONFIG",
    "REGISTRY_AUTH_FILE",
    "TF_CLI_CONFIG_FILE",
    "npm_config_userconfig",
)
"""Variables with the path of such a file, or several with `:` between them."""


def secret_paths(home: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the existing real paths of secrets, each once.

    `environ`: variables that move them; a path that is not absolute counts as none. A folder stands
    for all that is in it.
    """
    found = dict.fromkeys(
        os.path.realpath(path) for named in _named(home, environ) for path in _matching(named)
    )
    inside = os.path.realpath(home).rstrip("/") + "/"
    return tuple(path for path in found if not inside.startswith(path.rstrip("/") + "/"))


def _named(home: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield all paths to look at, with `*`."""
    for place in PLACES:
        for folder in dict.fromkeys(_folders(place, home, environ)):
            yield from (os.path.join(folder, name).rstrip("/") for name in place.names)
    for variable in FILES_OF_VARIABLES:
        yield from _absolute(environ.get(variable, ""))


def _folders(place: Place, home: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the usual folder and those that variables name; files may have stayed in the first."""
    first, _, rest = place.folder.partition("/")
    if first in XDG:
        yield os.path.join(home, XDG[first], rest)
        yield from (os.path.join(base, rest) for base in _absolute(environ.get(first, "")))
    else:
        yield os.path.join(home, place.folder)
    yield from _absolute(environ.get(place.variable, ""))


def _absolute(value: str) -> Iterator[str]:
    yield from (path for path in value.split(os.pathsep) if path.startswith("/"))


def _matching(path: str) -> Iterator[str]:
    """Yield the existing paths of a name with `*`."""
    if "*" in path:
        import glob

        yield from glob.iglob(path, include_hidden=True)
    elif os.path.lexists(path):
        yield path
