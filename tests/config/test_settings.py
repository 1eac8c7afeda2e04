"""Layers of settings: precedence, limits of a project's file, and one exact line for each
mistake.
"""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from longrein.config import remember_rule, state_dir
from longrein.config.settings import forget_rule, own_rules
from longrein.settings_schema import (
    InstructionOptions,
    Limits,
    ModelSettings,
    PermissionRules,
    RedactOptions,
    Settings,
    ToolOptions,
)
from longrein_context.events import SettingsError
from tests.config.conftest import ConfigFolders
from tests.tables import read_rows, split_words

USER = "~/.config/longrein/config.toml"
PROJECT = "~/repo/.longrein/config.toml"


def test_without_any_file_all_is_built_in(folders: ConfigFolders) -> None:
    assert folders.load() == Settings()


def test_the_nearest_layer_wins_and_each_value_knows_where_it_came_from(
    folders: ConfigFolders,
) -> None:
    folders.user(
        'model = "a/user"\nfallback_model = "a/user"\nprofile = "seed"\ncompact_model = "a/user"'
    )
    folders.project(
        '# ours\nmodel = "a/project"\nfallback_model = "a/project"\ncompact_model = "a/project"'
    )
    environ = {
        "LONGREIN_MODEL": "a/environment",
        "LONGREIN_FALLBACK_MODEL": "a/environment",
        "LONGREIN_PROFILE": "",
    }
    settings = folders.load(environ, model="a/flag", permission_mode="")
    assert (settings.model, settings.origin["model"]) == ("a/flag", "--model")
    found = (settings.fallback_model, settings.origin["fallback_model"])
    assert found == ("a/environment", "LONGREIN_FALLBACK_MODEL")
    found = (settings.compact_model, settings.origin["compact_model"])
    assert found == ("a/project", f"{PROJECT}:4")
    assert (settings.profile, settings.origin["profile"]) == ("seed", f"{USER}:3")
    assert settings.limits.parallel_max == 10  # of the seed profile


def test_everything_a_file_can_say(folders: ConfigFolders) -> None:
    settings = folders.user("""
model = "mock/small"
permission_mode = "acceptEdits"

[permissions]
allow = ["Bash(npm test)"]
ask = ["Bash(git push *)"]
deny = ["Read(.env)"]

[providers.mock]
wire = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
api_key_env = "MOCK_KEY"
text_tools = true
headers = { X-Team = "blue", Accept = "x" }

[models."mock/small"]
window = 200_000
max_output = 8192
price_input = 1
price_output = 2.5
cache_ttl_s = 60
effort = "high"

[tools]
bash_timeout_s = 5.5
read_lines_max = 10

[limits]
max_turns = 3
max_budget_usd = 1.5
parallel_max = 4

[context]
files = ["TEAM.md"]
bytes_max = 100

[env]
keep = ["AWS_*"]

[redact]
patterns = ["acme-[0-9]+"]
env = ["ACME"]
""").load()
    found = settings.permissions
    assert found == PermissionRules(("Bash(npm test)",), ("Bash(git push *)",), ("Read(.env)",))
    assert settings.providers["mock"].headers == (("Accept", "x"), ("X-Team", "blue"))
    found = settings.models["mock/small"]
    assert found == ModelSettings(200_000, 8192, 1, 2.5, -1.0, -1.0, 60, "high")
    assert settings.tools == ToolOptions(bash_timeout_s=5.5, read_lines_max=10)
    assert settings.limits == Limits(3, 1.5, 4)
    assert settings.context == InstructionOptions(("TEAM.md",), 100)
    assert settings.env.keep == ("AWS_*",)
    assert settings.redact == RedactOptions(("acme-[0-9]+",), ("ACME",))
    assert settings.origin['models."mock/small".window'] == f"{USER}:18"
    assert settings.notes == ()


def test_lists_of_rules_add_up_over_the_layers(folders: ConfigFolders) -> None:
    folders.user('[permissions]\nallow = ["Edit"]\ndeny = ["Bash(rm *)"]')
    folders.project('[permissions]\ndeny = ["Bash(curl *)", "Bash(rm *)"]\nask = ["WebFetch"]')
    settings = folders.load(allowed_tools=("Bash(npm test)",), disallowed_tools=("Write",))
    assert settings.permissions.allow == ("Edit", "Bash(npm test)")
    assert settings.permissions.deny == ("Bash(rm *)", "Bash(curl *)", "Write")
    assert settings.permissions.ask == ("WebFetch",)
    assert settings.origin["permissions.deny"] == f"{USER}:3, {PROJECT}:2, --disallowed-tools"


# --- what a project may not do: S048, S052, S058 --------------------------------------------------

NOT_OF_A_PROJECT = "cannot be set by a project"
ONLY_NARROWED = "can only be narrowed by a project"
ANTHROPIC = "[providers.anthropic]\n"
IGNORED = [
    # S048
    (f'{ANTHROPIC}base_url = "http://evil"', f"providers.anthropic.base_url {NOT_OF_A_PROJECT}", 2),
    (f'{ANTHROPIC}api_key_env = "KEY"', f"providers.anthropic.api_key_env {NOT_OF_A_PROJECT}", 2),
    ('[providers.x.headers]\nA = "b"', f"providers.x.headers {NOT_OF_A_PROJECT}", 1),
    # S052
    ('permission_mode = "bypassPermissions"', f"permission_mode {ONLY_NARROWED}", 1),
    ('permission_mode = "acceptEdits"', f"permission_mode {ONLY_NARROWED}", 1),
    ('[permissions]\nallow = ["*"]', f"permissions.allow {NOT_OF_A_PROJECT}", 2),
    ('[env]\nkeep = ["*"]', f"env.keep {NOT_OF_A_PROJECT}", 2),
    ('[models."a/b"]\nprice_input = 0', f'models."a/b".price_input {NOT_OF_A_PROJECT}', 2),
    ("[limits]\nmax_turns = 9", f"limits.max_turns {ONLY_NARROWED}", 2),
    ("[limits]\nmax_turns = 0", f"limits.max_turns {ONLY_NARROWED}", 2),
    ("[limits]\nmax_budget_usd = 99", f"limits.max_budget_usd {ONLY_NARROWED}", 2),
    ("[limits]\nparallel_max = 64", f"limits.parallel_max {ONLY_NARROWED}", 2),
]


@pytest.mark.parametrize(("text", "said", "line"), IGNORED)
def test_S048_S052_a_project_may_only_narrow(
    folders: ConfigFolders, text: str, said: str, line: int
) -> None:
    folders.user("[limits]\nmax_turns = 5\nmax_budget_usd = 2")
    plain, settings = folders.load(), folders.project(text).load()
    assert settings.notes == (f"{PROJECT}:{line}: {said}; it was ignored.",)
    assert settings == msgspec.structs.replace(plain, notes=settings.notes)


def test_a_project_narrows(folders: ConfigFolders) -> None:
    folders.user('permission_mode = "acceptEdits"\n[limits]\nmax_turns = 5')
    settings = folders.project(
        'permission_mode = "plan"\n[limits]\nmax_turns = 2\nmax_budget_usd = 1'
    ).load()
    assert (settings.permission_mode, settings.limits) == ("plan", Limits(2, 1.0))
    assert folders.load(permission_mode="bypassPermissions").permission_mode == "bypassPermissions"


def test_S058_without_trust_a_project_file_is_not_even_opened(folders: ConfigFolders) -> None:
    folders.project("this is = not [ toml")
    assert folders.load(trusted=False) == Settings()
    with pytest.raises(SettingsError):
        folders.load(trusted=True)


def test_a_home_that_is_the_project_is_no_project(folders: ConfigFolders) -> None:
    folders.cwd = folders.home / ".config"
    (folders.home / ".config/.longrein").mkdir(parents=True)
    assert folders.user('model = "a/b"').load().model == "a/b"


# --- mistakes: one line each ----------------------------------------------------------------------

MISTAKES = """
a = 1⏎model = "x => :2: not TOML: unterminated string
a = 1⏎a = 2 => :2: not TOML: cannot overwrite a value
modle = "a/b" => :1: modle is not a setting: did you mean model?
[limits]⏎max_turn = 1 => :2: limits.max_turn is not a setting: did you mean limits.max_turns?
max_turns = 1 => :1: max_turns is not a setting: did you mean limits.max_turns?
[permissions]⏎alow = [] => :2: permissions.alow is not a setting: did you mean permissions.allow?
[providers.mock]⏎base-url = "x" =>
    :2: providers.mock.base-url is not a setting: did you mean providers.mock.base_url?
[models."a/b"]⏎windows = 1 =>
    :2: models."a/b".windows is not a setting: did you mean models."a/b".window?
[models.a]⏎b.window = 1 => :2: models.a.b.window is not a setting: did you mean models."a/b".window?
[models."a/b".price]⏎input = 3 =>
    :2: models."a/b".price.input is not a setting: did you mean models."a/b".price_input?
zzzzzzzzzzz = 1 => :1: zzzzzzzzzzz is not a setting
[wholly.unknown]⏎x = 1 => :2: wholly.unknown.x is not a setting
permissions = 1 => :1: permissions is not a setting
providers = [] => :1: providers is not a setting
model = 1 => :1: model must be PROVIDER/MODEL, not 1
model = "gpt" => :1: model must be PROVIDER/MODEL, not "gpt"
model = "a/b c" => :1: model must be PROVIDER/MODEL, not "a/b c"
profile = "big" =>
    :1: profile must be one of default, standard, small, seed, seed-later, seed-new, \
seed-framework, not "big"
[limits]⏎max_turns = -1 => :2: limits.max_turns must be a whole number of 0 or more, not -1
[limits]⏎max_turns = 1.5 => :2: limits.max_turns must be a whole number of 0 or more, not 1.5
[limits]⏎max_turns = true => :2: limits.max_turns must be a whole number of 0 or more, not true
[limits]⏎parallel_max = 0 => :2: limits.parallel_max must be a whole number of 1 or more, not 0
[limits]⏎max_budget_usd = "ten" =>
    :2: limits.max_budget_usd must be a number of 0 or more, not "ten"
[limits]⏎max_budget_usd = nan => :2: limits.max_budget_usd must be a number of 0 or more, not nan
[models."a/b"]⏎window = 0 => :2: models."a/b".window must be a whole number of 1 or more, not 0
[providers.a]⏎text_tools = "yes" => :2: providers.a.text_tools must be true or false, not "yes"
[providers.a]⏎base_url = 1 => :2: providers.a.base_url must be a text, not 1
[providers.a]⏎headers = { X = 1 } => :2: providers.a.headers must be a table of texts, not {'X': 1}
[permissions]⏎allow = "Edit" => :2: permissions.allow must be a list of texts, not "Edit"
[permissions]⏎ask = [⏎"Bash(rm"] => :2: permissions.ask "Bash(rm": the closing bracket is missing
[redact]⏎patterns = ["x*"] => :2: redact.patterns "x*": matches the empty text
permission_mode = "yolo" =>
    :1: permission_mode must be one of plan, dontAsk, default, acceptEdits, auto, \
bypassPermissions, not "yolo"
[providers.a]⏎wire = "x" =>
    :2: providers.a.wire must be one of anthropic, openai-chat, openai-responses, gemini, \
scripted, not "x"
[permissions]⏎allow = ["Bash(a | b)"] =>
    :2: permissions.allow "Bash(a | b)": a rule covers one command of a line, so it cannot hold `|`
[redact]⏎patterns = ["("] => :2: redact.patterns "(": is no regular expression \
(missing ), unterminated subpattern at position 0)
[redact]⏎patterns = ["x{99999999999}"] => :2: redact.patterns "x{99999999999}": is no regular \
expression (the repetition number is too large)
"""
"""A file, with ⏎ for the ends of lines => what is said of it, after the name of the file."""
TOO_MANY_DIGITS = (
    ":1: not TOML: exceeds the limit (4300 digits) for integer string conversion: value has 5000 "
    "digits"
)
MISSPELT = ":3: permision_mode is not a setting: did you mean permission_mode?"
WRONG = [
    *read_rows(MISTAKES),
    ("model = ", ":1: not TOML: invalid value"),
    ("[permissions\n", ":1: not TOML: expected ']' at the end of a table declaration"),
    (f"a = {'1' * 5_000}", TOO_MANY_DIGITS),
    ('\n\npermision_mode = "plan"', MISSPELT),
    ("model\x00", ":1: not TOML: expected '=' after a key in a key/value pair"),
    ("a\n\udcff", ":2: not UTF-8 text: save the file as UTF-8"),
    ("#" * 1_000_001, ": larger than 1 MB, that is no settings file: mend or remove it"),
]


@pytest.mark.parametrize(("text", "line"), WRONG)
def test_malformed_settings_say_file_line_key_and_nearest_key(
    folders: ConfigFolders, text: str, line: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        folders.user(text).load()
    assert str(caught.value) == USER + line


def test_a_file_that_cannot_be_read_says_so(folders: ConfigFolders) -> None:
    (folders.home / ".config/longrein/config.toml").mkdir(parents=True)
    with pytest.raises(
        SettingsError,
        match=r"^~/.config/longrein/config.toml: cannot be read \(a folder, not a file\): mend",
    ):
        folders.load()


@pytest.mark.parametrize(
    "text", ["", "\ufeff", "# nothing\n", "[providers.mock]\n[limits]\n[models]\n"]
)
def test_R049_an_empty_file_says_nothing(folders: ConfigFolders, text: str) -> None:
    assert folders.user(text).load().notes == ()


VARIABLES = [
    ({"LONGREIN_MODEL": "gpt"}, 'LONGREIN_MODEL must be PROVIDER/MODEL, not "gpt"'),
    (
        {"LONGREIN_MAX_TURNS": "many"},
        'LONGREIN_MAX_TURNS must be a whole number of 0 or more, not "many"',
    ),
    (
        {"LONGREIN_MAX_BUDGET_USD": "inf"},
        "LONGREIN_MAX_BUDGET_USD must be a number of 0 or more, not inf",
    ),
]


@pytest.mark.parametrize(("environ", "line"), VARIABLES)
def test_a_wrong_variable_is_named(
    folders: ConfigFolders, environ: dict[str, str], line: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        folders.load(environ)
    assert str(caught.value) == line


def test_variables_and_flags(folders: ConfigFolders) -> None:
    settings = folders.load(
        {"LONGREIN_MAX_TURNS": "7", "LONGREIN_BASH_TIMEOUT_S": "1.5"}, max_budget_usd=2.0
    )
    assert (settings.limits, settings.tools) == (Limits(7, 2.0), ToolOptions(1.5))
    with pytest.raises(
        SettingsError, match=r'^--allowed-tools "Bash\(a;b\)": a rule covers one command of a line'
    ):
        folders.load(allowed_tools=("Bash(a;b)",))


RULES = [
    ("Raed(.env)", "no tool is called Raed: did you mean Read? The rule has no effect."),
    ("Bsh(ls)", "no tool is called Bsh: did you mean Bash? The rule has no effect."),
    ("bash(ls)", "no tool is called bash: did you mean Bash? The rule has no effect."),
    (
        "TaskOutptu",
        "no tool is called TaskOutptu: did you mean TaskOutput? The rule has no effect.",
    ),
    ("Frobnicate(x)", "no tool is called Frobnicate. The rule has no effect."),
    ("PowerShell", "no tool is called PowerShell. The rule has no effect."),
    ("Frob*", "no tool is called Frob*. The rule has no effect."),
    *(
        (rule, "")
        for rule in split_words("""
            Read(.env) * Task* WebFetch(domain:a.com) Skill(x) MultiEdit(a) Task(explore)
            BashOutput WebSearch Network(example.com)
        """)
    ),
    *((rule, "") for rule in ("mcp__mem", "mcp__mem__get(x:1)", "mcp__*", "Agent(explore)")),
]


@pytest.mark.parametrize(("rule", "said"), RULES)
def test_a_rule_for_a_tool_that_nobody_knows_is_told(
    folders: ConfigFolders, rule: str, said: str
) -> None:
    settings = folders.user(f'[permissions]\n# ours\ndeny = ["{rule}"]').load()
    assert settings.permissions.deny == (rule,)
    assert settings.notes == ((f"{USER}:3: permissions.deny {rule}: {said}",) if said else ())


def test_a_rule_of_the_command_line_for_a_tool_that_nobody_knows_is_told(
    folders: ConfigFolders,
) -> None:
    assert folders.load(allowed_tools=("Bsh(ls)",)).notes == (
        (
            "--allowed-tools: permissions.allow Bsh(ls): no tool is called Bsh: did you mean Bash? "
            "The rule has no effect."
        ),
    )


OF_COMMANDS = {"LONGREIN_COMMAND": "/1.2/", "LONGREIN_SESSION": "y", "LONGREIN_DEPTH": "2"}


@pytest.mark.parametrize(("environ", "notes"), [
    ({"LONGREIN_MODLE": "a/b"}, "LONGREIN_MODLE is not a setting: did you mean LONGREIN_MODEL?"),
    ({"LONGREIN_ZZZZZZZZZZZZ": "1"}, "LONGREIN_ZZZZZZZZZZZZ is not a setting."),
    (OF_COMMANDS, ""),
    ({"LONGREIN_STATE_DIR": "/x", "LONGREIN_SUBAGENT_MODEL": "x/y"}, ""),
])  # fmt: skip
def test_an_unknown_variable_is_told(
    folders: ConfigFolders, environ: dict[str, str], notes: str
) -> None:
    assert folders.load(environ).notes == ((f"{notes} It was ignored.",) if notes else ())


PLACES = [
    ({}, "/h/.local/state/longrein"),
    ({"XDG_STATE_HOME": "/s/"}, "/s/longrein"),
    ({"XDG_STATE_HOME": "relative"}, "/h/.local/state/longrein"),
    ({"XDG_STATE_HOME": "/s", "LONGREIN_STATE_DIR": "/mine"}, "/mine"),
    ({"LONGREIN_STATE_DIR": "~/mine"}, "/h/mine"),
]


@pytest.mark.parametrize(("environ", "path"), PLACES)
def test_where_state_lies(environ: dict[str, str], path: str) -> None:
    assert state_dir(environ, "/h", "linux") == path


# --- always allow ---------------------------------------------------------------------------------

LIST = '[permissions]\nallow = [\n  "Read", # see ]\n  "Bash(a \\"b\\")",  # two\n'
DENY = '[permissions]\ndeny = ["Write"]\n'
ALWAYS = [
    ("", '[permissions]\nallow = ["Edit"]\n'),
    ('model = "a/b"\n', 'model = "a/b"\n\n[permissions]\nallow = ["Edit"]\n'),
    ('model = "a/b"', 'model = "a/b"\n[permissions]\nallow = ["Edit"]\n'),
    ("[permissions] # mine\n", '[permissions] # mine\nallow = ["Edit"]\n'),
    ("[permissions]\nallow = []\n", '[permissions]\nallow = ["Edit"]\n'),
    ('[permissions]\nallow = ["R"]\n[env]\n', '[permissions]\nallow = ["R", "Edit"]\n[env]\n'),
    ('[permissions]\nallow = ["Read",]\n', '[permissions]\nallow = ["Read", "Edit"]\n'),
    (f'{LIST}]\ndeny = ["Write"]\n', f'{LIST}  "Edit",\n]\ndeny = ["Write"]\n'),
    ("permissions.allow = [\n  'R'\n]\n", "permissions.allow = [\n  'R',\n  \"Edit\"\n]\n"),
    (DENY, f'{DENY}allow = ["Edit"]\n'),
    ('permissions.allow = ["Read"]\n', 'permissions.allow = ["Read", "Edit"]\n'),
    ("permissions = { allow = [] }\n", 'permissions = { allow = ["Edit"] }\n'),
    ('[permissions]\nallow = ["Edit"]\n', '[permissions]\nallow = ["Edit"]\n'),
]


@pytest.mark.parametrize(("before", "after"), ALWAYS)
def test_always_allow_changes_nothing_else_in_the_users_file(
    folders: ConfigFolders, before: str, after: str
) -> None:
    if before:
        folders.user(before)
    remember_rule("Edit", {}, str(folders.home))
    path = folders.home / ".config/longrein/config.toml"
    written = path.read_text()
    assert written == after
    assert "Edit" in folders.load().permissions.allow
    remember_rule("Edit", {}, str(folders.home))
    assert path.read_text() == written


def test_always_allow_keeps_mode_and_link_and_takes_any_rule(
    folders: ConfigFolders, tmp_path: Path
) -> None:
    target = tmp_path / "dotfiles.toml"
    target.write_text('model = "a/b"\n')
    target.chmod(0o640)
    link = folders.home / ".config/longrein/config.toml"
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    rules = ('Bash(echo "a\'b")', "Edit(//x/\\[a])", "Bash(git commit -m 'é')")
    for rule in rules:
        remember_rule(rule, {}, str(folders.home))
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o640
    assert folders.load().permissions.allow == rules
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".new")] == []


def test_a_new_file_is_the_users_alone(folders: ConfigFolders) -> None:
    os.umask(umask := os.umask(0))
    remember_rule("Edit", {}, str(folders.home))
    assert (folders.home / ".config/longrein/config.toml").stat().st_mode & 0o777 == 0o600
    assert os.umask(umask) == umask


REFUSED = [
    ("modle = 1\n", "Edit", f"{USER}:1: modle is not a setting: did you mean model?"),
    (
        "",
        "Bash(a;b)",
        "'Bash(a;b)' cannot be stored: a rule covers one command of a line, so it cannot hold `;`",
    ),
    ("", "Bash(a\u202eb)", "'Bash(a\\u202eb)' cannot be stored: it holds invisible characters"),
]


@pytest.mark.parametrize(("before", "rule", "line"), REFUSED)
def test_what_cannot_be_added_safely_is_left_alone(
    folders: ConfigFolders, before: str, rule: str, line: str
) -> None:
    folders.user(before)
    with pytest.raises(SettingsError) as caught:
        remember_rule(rule, {}, str(folders.home))
    assert str(caught.value) == line
    assert (folders.home / ".config/longrein/config.toml").read_text() == before


def test_a_rule_that_is_removed_leaves_the_others_and_their_comments(
    folders: ConfigFolders,
) -> None:
    folders.user(
        '[permissions]\nallow = [\n  "Read", # mine\n  "Edit",\n]\ndeny = ["Write"] # no\n'
    )
    forget_rule("allow", "Edit", {}, str(folders.home))
    path = folders.home / ".config/longrein/config.toml"
    after = '[permissions]\nallow = [\n  "Read", # mine\n]\ndeny = ["Write"] # no\n'
    assert path.read_text() == after
    with pytest.raises(SettingsError, match="holds no rule 'Edit' under"):
        forget_rule("allow", "Edit", {}, str(folders.home))
    forget_rule("deny", "Write", {}, str(folders.home))
    assert path.read_text() == after.replace('"Write"', "")
    assert [rule for _, rule, _ in own_rules({}, str(folders.home))] == ["Read"]


def test_a_text_that_would_hold_something_else_is_not_written(
    folders: ConfigFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders.user('model = "a/b"\n')
    for wrong in ("", "= ", 'model = "a/c"\n[permissions]\nallow = ["Edit"]\n'):
        monkeypatch.setattr("tomlkit.dumps", lambda _, wrong=wrong: wrong)
        with pytest.raises(SettingsError, match=r"change permissions\.allow in it by hand"):
            remember_rule("Edit", {}, str(folders.home))
    assert (folders.home / ".config/longrein/config.toml").read_text() == 'model = "a/b"\n'


def test_import_brings_nothing_dear() -> None:
    code = (
        "import sys, longrein.config; print(*(m for m in ('tomllib', 'tomlkit', 'yaml', "
        "'platformdirs', 'pathspec') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_a_project_that_sets_a_table_of_an_absent_plugin_is_told_so(folders: ConfigFolders) -> None:
    folders.user('plugins = ["not_installed_here"]')
    settings = folders.project("[foo]\nx = 1").load()
    assert any("foo" in note and "left out" in note for note in settings.notes)
