"""Choice of the model: named, found by its key, found on its port, or an error that says where
it looked.
"""

from collections.abc import Mapping

import msgspec
import pytest

from longrein.config import Probe, StoredKeys, choose_model, known_secrets
from longrein.config.key_editing import keep_key
from longrein.config.stored_keys import KeyEnvironment, provider_key
from longrein.frontends.provider_keys import ignored_key
from longrein.models import ModelOptions, ServedModel, known_providers, look_up
from longrein_context import Price
from longrein_context.events import ModelUnknown, SettingsError
from tests.config.conftest import ConfigFolders
from tests.tables import read_rows

KEY = "sk-test-0123456789"
MOCK = '[providers.mock]\nwire = "openai-chat"\nbase_url = "http://127.0.0.1:9/v1/"\n'


def nobody(_url: str, _name: str, _key: str) -> ServedModel | None:
    return None


def found(
    folders: ConfigFolders,
    environ: Mapping[str, str],
    text: str = "",
    name: str = "",
    probe: Probe = nobody,
) -> ModelOptions:
    return choose_model(folders.user(text).load(environ), environ, probe, name=name)


@pytest.mark.parametrize("provider", ["anthropic", "openai", "gemini", "openrouter"])
def test_a_key_is_found_without_any_file(folders: ConfigFolders, provider: str) -> None:
    options = found(folders, {f"{provider.upper()}_API_KEY": f" {KEY}\n"})
    assert (options.provider, options.api_key) == (provider, KEY)
    assert options.model
    assert options.budget is None  # the table's figures


def test_the_order_is_the_catalogs(folders: ConfigFolders) -> None:
    environ = {k: KEY for known in known_providers() for k in known.keys}
    assert found(folders, environ).provider == known_providers()[0].name
    assert found(folders, {**environ, "ANTHROPIC_API_KEY": " "}).provider == "openai"


def test_a_local_server_is_found_on_its_usual_port(folders: ConfigFolders) -> None:
    asked: list[str] = []

    def probe(url: str, name: str, _key: str) -> ServedModel | None:
        asked.append(f"{url} {name}".strip())
        return ServedModel("qwen3:8b", 4_096) if ":1234" in url else None

    options = choose_model(folders.load(), {}, probe)
    found = (options.provider, options.model, options.wire)
    assert found == ("lmstudio", "qwen3:8b", "openai-chat")
    assert (options.base_url, options.api_key) == ("http://127.0.0.1:1234/v1", "")
    lm_studio = "http://127.0.0.1:1234/v1"
    assert asked == ["http://127.0.0.1:11434/v1", lm_studio, f"{lm_studio} qwen3:8b"]


MINE = '[providers.mine]\nwire = "openai-chat"\nbase_url = "http://{}/v1"\n'
AT_HOME, AWAY = MINE.format("127.0.0.1:9"), MINE.format("llm.example.com")
GGUF = "/models/qwen2.5-7b-instruct-q4.gguf"
STATED = '[models."{}"]\nwindow = 5000'
SERVED = ServedModel(GGUF, 8_192)


@pytest.mark.parametrize(("text", "name", "served", "served_as", "window", "is_assumed"), [
    ("", "llamacpp/qwen", SERVED, GGUF, 8_192, False),
    ("", f"llamacpp/{GGUF}", SERVED, "", 8_192, False),
    ("", "ollama/anything", SERVED, GGUF, 8_192, False),
    ("", "ollama/qwen3", ServedModel("qwen3:8b"), "qwen3:8b", 32_768, True),
    ("", "ollama/qwen3", ServedModel("qwen3:8b", 262_144), "qwen3:8b", 262_144, False),
    ("", "ollama/qwen3", None, "", 32_768, True),
    (STATED.format("ollama/qwen3"), "ollama/qwen3", SERVED, GGUF, 5_000, False),
    (STATED.format("ollama/qwen3"), "ollama/qwen3", None, "", 5_000, False),
    (AT_HOME, "mine/qwen", SERVED, GGUF, 8_192, False),
    (AT_HOME, "mine/anything", SERVED, "", 8_192, False),
    (AT_HOME, "mine/anything", None, "", 128_000, True),
    (AWAY, "mine/qwen", SERVED, "", 128_000, True),
])  # fmt: skip
def test_a_server_of_the_users_own_says_the_model_and_its_window(
    folders: ConfigFolders,
    text: str,
    name: str,
    served: ServedModel | None,
    served_as: str,
    window: int,
    is_assumed: bool,
) -> None:
    options = found(folders, {}, text, name, lambda *_: served)
    budget = options.budget or look_up(options.provider, options.model)
    assert f"{options.provider}/{options.model}" == name
    assert options.served_as == served_as
    assert (budget.window_tokens, budget.is_window_assumed) == (window, is_assumed)
    assert budget.max_output_tokens * 4 <= budget.window_tokens or "window" in text


def test_a_provider_elsewhere_is_not_asked_and_a_name_is_split_at_the_first_slash(
    folders: ConfigFolders,
) -> None:
    def probe(*_: str) -> ServedModel | None:
        raise AssertionError("a provider with a key knows its models")

    name = "openrouter/anthropic/claude-sonnet-5.5"
    options = found(folders, {"OPENROUTER_API_KEY": KEY}, name=name, probe=probe)
    assert (options.provider, options.model) == ("openrouter", "anthropic/claude-sonnet-5.5")
    assert found(folders, {}, 'model = "ollama/qwen3:8b"').base_url == "http://127.0.0.1:11434/v1"


def test_a_provider_of_the_users_own(folders: ConfigFolders) -> None:
    text = (
        'model = "mock/small"\n'
        + MOCK
        + 'api_key_env = "MOCK_KEY"\ntext_tools = true\nheaders = { A = "b" }'
    )
    text += "\nidle_timeout_s = 7\ncontent_timeout_s = 70"
    options = found(folders, {"MOCK_KEY": KEY}, text)
    assert options == ModelOptions(
        *("mock", "small", "openai-chat", "http://127.0.0.1:9/v1", KEY),
        key_source="MOCK_KEY",
        key_advice=options.key_advice,
        text_tools=True,
        headers=(("A", "b"),),
        budget=msgspec.structs.replace(look_up("mock", "small"), is_local=True),
        idle_timeout_s=7.0,
        content_timeout_s=70.0,
    )
    assert options.key_advice.startswith("it came from MOCK_KEY; set another there, or ")
    plain = found(folders, {}, MOCK, "mock/small")
    assert (plain.api_key, plain.idle_timeout_s, plain.content_timeout_s) == ("", 120.0, 900.0)


@pytest.mark.parametrize(("url", "is_local"), [
    ("http://127.0.0.1:9/v1", True),
    ("http://localhost:9/v1", True),
    ("http://[::1]:9/v1", True),
    ("http://10.0.3.7/v1", True),
    ("http://172.20.0.2:8000/v1", True),
    ("http://192.168.1.20:8000/v1", True),
    ("http://[fd12:3456::1]:8000/v1", True),
    ("http://172.32.0.2/v1", False),
    ("http://10.evil.test/v1", False),
    ("https://api.example.test/v1", False),
    ("http://8.8.8.8/v1", False),
])  # fmt: skip
def test_a_model_without_prices_at_an_address_of_the_users_own_is_local(
    folders: ConfigFolders, url: str, is_local: bool
) -> None:
    provider = f'[providers.mock]\nwire = "openai-chat"\nbase_url = "{url}"\n'
    budget = found(folders, {}, provider, "mock/small").budget
    assert (budget is not None and budget.is_local) == is_local
    priced = provider + '[models."mock/small"]\nprice_input = 1\nprice_output = 2\n'
    budget = found(folders, {}, priced, "mock/small").budget
    assert not budget.is_local
    assert budget.price is not None


def test_a_scripted_model_is_a_file(folders: ConfigFolders) -> None:
    text = '[providers.play]\nwire = "scripted"\nbase_url = "~/script.jsonl"'
    assert found(folders, {"HOME": "/h"}, text, "play/any").base_url == "/h/script.jsonl"


def test_figures_of_the_settings_stand_over_those_of_the_table(folders: ConfigFolders) -> None:
    name = "anthropic/claude-sonnet-4-5"
    table = look_up(*name.split("/"))
    assert table.price
    environ = {"ANTHROPIC_API_KEY": KEY}
    options = found(
        folders,
        environ,
        f'[models."{name}"]\nwindow = 1000\nprice_output = 1.5\neffort = "low"',
        name,
    )
    assert options.budget
    seen = (options.budget.window_tokens, options.budget.max_output_tokens)
    assert seen == (1000, table.max_output_tokens)
    told = options.budget.price
    assert told == Price(table.price.input, 1.5, table.price.cache_read, table.price.cache_write)
    assert options.effort == "low"
    assert found(folders, environ, f'[models."{name}"]\neffort = "low"', name).budget is None


def test_cache_prices_that_the_settings_do_not_give_are_the_usual_ones(
    folders: ConfigFolders,
) -> None:
    given = '[models."mock/claude-x"]\nprice_input = 4\nprice_output = 20\n'
    options = found(folders, {}, MOCK + given, "mock/claude-x")
    assert options.budget
    assert options.budget.price == Price(4.0, 20.0, 0.4, 4.0, assumed=True)
    options = found(folders, {}, MOCK + given + "price_cache_read = 4\n", "mock/claude-x")
    assert options.budget
    assert options.budget.price == Price(4.0, 20.0, 4.0), "no cache, where that is said"


OPENAI_AT = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "https://h.de/v1/"}
LOCAL = "http://127.0.0.1:5/v1"
ANTHROPIC_AT = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": "http://h"}
ADDRESSES = [
    ({"OPENAI_API_KEY": KEY}, "openai/x", "openai-responses", "https://api.openai.com/v1"),
    (OPENAI_AT, "openai/x", "openai-chat", "https://h.de/v1"),
    ({"OPENAI_BASE_URL": LOCAL}, "openai/x", "openai-chat", LOCAL),
    (ANTHROPIC_AT, "anthropic/x", "anthropic", "http://h"),
    ({"OLLAMA_HOST": "0.0.0.0:9"}, "ollama/x", "openai-chat", "http://127.0.0.1:9/v1"),
    ({"OLLAMA_HOST": "http://box:9/"}, "ollama/x", "openai-chat", "http://box:9/v1"),
]


@pytest.mark.parametrize(("environ", "name", "wire", "url"), ADDRESSES)
def test_addresses_from_the_environment(
    folders: ConfigFolders, environ: dict[str, str], name: str, wire: str, url: str
) -> None:
    options = found(folders, environ, name=name)
    assert (options.wire, options.base_url) == (wire, url)


PROXIES = [
    ({"HTTPS_PROXY": "http://p:1"}, "anthropic/x", "http://p:1"),
    ({"https_proxy": "http://p:1"}, "anthropic/x", "http://p:1"),
    ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "a.com, .anthropic.com"}, "anthropic/x", ""),
    ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, "anthropic/x", ""),
    ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "thropic.com"}, "anthropic/x", "http://p:1"),
    ({"HTTPS_PROXY": "http://p:1"}, "ollama/x", ""),
]


@pytest.mark.parametrize(("environ", "name", "proxy"), PROXIES)
def test_proxies(folders: ConfigFolders, environ: dict[str, str], name: str, proxy: str) -> None:
    assert found(folders, {"ANTHROPIC_API_KEY": KEY, **environ}, name=name).proxy == proxy


# --- mistakes -------------------------------------------------------------------------------------


def test_nothing_found_says_in_three_lines_what_to_do(folders: ConfigFolders) -> None:
    with pytest.raises(ModelUnknown) as caught:
        found(folders, {})
    assert str(caught.value).splitlines() == [
        "No model yet: `longrein login PROVIDER` keeps a key,",
        "or start ollama, lmstudio, llamacpp or vllm on this machine.",
        "`longrein demo` shows a real job without a key.",
    ]


NO_KEY = (
    ", or use another with --model PROVIDER/MODEL.\n`longrein demo` shows a real job without a key."
)
KEPT = "No key for {0}: `longrein login {0}` keeps one,\nor set"
UNKNOWN = [
    ("", "gpt-5.2", "'gpt-5.2' is not PROVIDER/MODEL: did you mean openai/gpt-5-2?"),
    ("", "zzz", "'zzz' is not PROVIDER/MODEL."),
    ("", "anthropic/claude", f"{KEPT.format('anthropic')} ANTHROPIC_API_KEY{NO_KEY}"),
    ("", "gemini/x", f"{KEPT.format('gemini')} GEMINI_API_KEY{NO_KEY}"),
    (MOCK + 'api_key_env = "MOCK_KEY"', "mock/x", f"{KEPT.format('mock')} MOCK_KEY{NO_KEY}"),
]


@pytest.mark.parametrize(("text", "name", "line"), UNKNOWN)
def test_an_unknown_model_is_told_with_what_to_do(
    folders: ConfigFolders, text: str, name: str, line: str
) -> None:
    with pytest.raises(ModelUnknown) as caught:
        found(folders, {}, text, name)
    assert str(caught.value) == line


def test_an_unknown_provider_names_the_known_ones_and_the_nearest(folders: ConfigFolders) -> None:
    with pytest.raises(ModelUnknown) as caught:
        found(folders, {}, MOCK + '[models."a/b"]\nwindow = 1', "antropic/claude")
    line = str(caught.value)
    assert line.startswith(
        "Unknown provider 'antropic' in 'antropic/claude': did you mean anthropic? Known are "
        "mock, anthr"
    )
    assert line.endswith("; another needs [providers.antropic] in ~/.config/longrein/config.toml.")
    with pytest.raises(
        ModelUnknown,
        match=r"^Unknown provider 'zzz' in 'zzz/x' \(LONGREIN_MODEL\)\. Known are anthropic",
    ):
        found(folders, {"LONGREIN_MODEL": "zzz/x"})


LACKING = read_rows("""
base_url = "http://x" => :2: provider a has no wire: add it under [providers.a]
wire = "gemini" => :2: provider a has no base_url: add it under [providers.a]
wire = "gemini"⏎base_url = "x.com" =>
    :3: the base_url of a must start with http:// or https://, not 'x.com'
wire = "gemini"⏎base_url = "http://x"⏎[models."a/m"]⏎price_input = 1 =>
    :5: models."a/m" needs both price_input and price_output
""")


@pytest.mark.parametrize(("text", "line"), LACKING)
def test_a_provider_that_is_not_whole(folders: ConfigFolders, text: str, line: str) -> None:
    with pytest.raises(SettingsError) as caught:
        found(folders, {}, f"[providers.a]\n{text}", "a/m")
    assert str(caught.value) == f"~/.config/longrein/config.toml{line}"


# --- secrets --------------------------------------------------------------------------------------

SECRETS = {
    "ANTHROPIC_API_KEY": KEY,
    "MOCK": "value-of-mock",
    "ACME": "plainvalue",
    "GITHUB_TOKEN": "ghp_longer_than_the_others",
    "DB_PASSWORD": "s3cr3t!!",
    "SHORT_TOKEN": "abc",
    "TOKEN_FILE": "/run/secrets/token",
    "SECRET_URL": "https://example.com/x",
    "PROXY_SECRET": "https://u:p@example.com/x",
    "KEYBOARD": "de-latin1-nodeadkeys",
    "MAX_TOKEN": "100000000000",
    "USE_TOKEN": "sometimes",
    "PATH": "/usr/bin:/bin",
}


def test_S069_known_secrets(folders: ConfigFolders) -> None:
    settings = folders.user(MOCK + 'api_key_env = "MOCK"\n[redact]\nenv = ["ACME"]').load()
    assert known_secrets(SECRETS, settings) == (
        "ghp_longer_than_the_others",
        "https://u:p@example.com/x",
        KEY,
        "value-of-mock",
        "plainvalue",
        "s3cr3t!!",
    )


# --- Which key is used ----------------------------------------------------------------------------


SET = {"GEMINI_API_KEY": KEY}
OTHER_SET = {"GOOGLE_API_KEY": KEY}


@pytest.mark.parametrize(("environ", "is_kept", "is_preferred", "source", "ignored"), [
    ({}, False, False, "none", ""),
    (SET, False, False, "GEMINI_API_KEY", ""),
    (OTHER_SET, False, False, "GOOGLE_API_KEY", ""),
    ({**SET, **OTHER_SET}, False, False, "GEMINI_API_KEY", ""),
    ({"GEMINI_API_KEY": " ", **OTHER_SET}, False, True, "GOOGLE_API_KEY", ""),
    ({}, True, False, "FILE", ""),
    ({"GEMINI_API_KEY": " "}, True, False, "FILE", ""),
    (SET, True, False, "GEMINI_API_KEY", "is set and comes before the key kept in FILE"),
    (OTHER_SET, True, False, "GOOGLE_API_KEY", "is set and comes before the key kept in FILE"),
    (SET, True, True, "FILE", "GEMINI_API_KEY is set too, and not used until longrein ends"),
    (OTHER_SET, True, True, "FILE", "GOOGLE_API_KEY is set too, and not used"),
])  # fmt: skip
def test_which_key_is_used_and_where_it_comes_from(
    folders: ConfigFolders,
    environ: Mapping[str, str],
    is_kept: bool,
    is_preferred: bool,
    source: str,
    ignored: str,
) -> None:
    settings = folders.load(environ)
    kept = StoredKeys({}, str(folders.home), settings.providers)
    if is_kept:
        keep_key(kept, "gemini", settings.providers, "kept-key-0123456789")
    if is_preferred:
        kept.preferred.add("gemini")
    given = KeyEnvironment(environ, kept)
    key = provider_key("gemini", settings.providers, given)
    shown = source.replace("FILE", kept.file)
    assert key.source == shown
    assert key.key == {"none": "", kept.file: "kept-key-0123456789"}.get(shown, KEY)
    assert ignored.replace("FILE", kept.file) in ignored_key(key)
    assert bool(ignored) == bool(ignored_key(key))
    assert (shown in key.advice) == bool(key.key)
    if key.key:
        chosen = choose_model(settings, given, nobody, name="gemini/gemini-3-pro")
        assert (chosen.api_key, chosen.key_source) == (key.key, key.source)
    assert "kept-key-0123456789" not in given.values(), "no process may get it"
