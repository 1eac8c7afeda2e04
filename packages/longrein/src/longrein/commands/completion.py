"""`longrein completion SHELL`: completion for bash, zsh and fish, from the tables of flags."""

from collections.abc import Sequence

from longrein.extension_points import Command, Flag
from longrein.frontends.argv import known_commands
from longrein.frontends.stdio import show
from longrein.frontends.subcommands import SHELLS
from longrein.models import known_providers
from longrein_context.events import UsageError

FOLDERS = ("DIR", "FOLDER")
FILES = ("FILE", "FILE|JSON")
"""Names of values that are folders and files."""


def completion(_place: object, words: Sequence[str]) -> int:
    """Write the completion script of a shell to stdout."""
    scripts = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
    if words[0] not in scripts:
        raise UsageError(f"no completion for {words[0]!r}: it is one of {', '.join(scripts)}")
    show(scripts[words[0]]())
    return 0


def _subcommands() -> list[Command]:
    return [command for command in known_commands().values() if command.name]


def _words(command: Command) -> list[str]:
    """Return the positional words to offer."""
    names = [one.name for one in _subcommands()]
    providers = [known.name for known in known_providers() if known.keys]
    agents = ["claude", "codex", "gemini", "opencode"]
    return {
        "": names,
        "help": names,
        "login": providers,
        "logout": providers,
        "completion": list(SHELLS),
        "import": agents,
    }.get(command.name, [])


def _spellings(command: Command) -> list[str]:
    return [name for flag in command.flags for name in flag.names]


def _valued(kinds: Sequence[str]) -> list[str]:
    """Return the spellings of the flags of every command whose value is one of `kinds`."""
    flags = [flag for command in known_commands().values() for flag in command.flags]
    return sorted({name for flag in flags if flag.metavar in kinds for name in flag.names})


def _choices(row: str) -> str:
    """Return a row of a script for each flag with fixed values: `row` with the places where it
    may stand and the values.
    """
    return "".join(
        row.format(
            "|".join(f"{command.name}:{name}" for name in flag.names), " ".join(flag.choices)
        )
        for command in known_commands().values()
        for flag in command.flags
        if flag.choices
    )


# --- bash -----------------------------------------------------------------------------------------


def bash_script() -> str:
    """Return the script for bash."""
    names = "|".join(command.name for command in _subcommands())
    values = _choices('    {}) words="{}" ;;\n')
    offers = "".join(
        f'    "{command.name}") words="{" ".join((*_words(command), *_spellings(command)))}" ;;\n'
        for command in known_commands().values()
    )
    return f"""\
# bash completion of longrein; put it to use with: source <(longrein completion bash)
_longrein() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} command= words= word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case $word in {names}) command=$word; break ;; esac
  done
  case $previous in
    {"|".join(_valued(FOLDERS))}) COMPREPLY=($(compgen -d -- "$current")); return ;;
    {"|".join(_valued(FILES))}) COMPREPLY=($(compgen -f -- "$current")); return ;;
  esac
  case $command:$previous in
{values}  esac
  [ -n "$words" ] || case $command in
{offers}  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _longrein longrein
"""  # noqa: E501


# --- zsh ------------------------------------------------------------------------------------------


def zsh_script() -> str:
    """Return the script for zsh; it may be sourced or stand as `_longrein` in a folder of
    `fpath`.
    """
    names = "|".join(command.name for command in _subcommands())
    values = _choices("    ({}) compadd -- {}; return ;;\n")
    offers = "".join(
        f"    ('{command.name}') offers=({_zsh_offers(command)}) ;;\n"
        for command in known_commands().values()
    )
    return f"""\
#compdef longrein
# zsh completion of longrein; put it to use with: source <(longrein completion zsh)
_longrein() {{
  local word command=''
  local -a offers
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    case $word in ({names}) command=$word; break ;; esac
  done
  case ${{words[CURRENT-1]}} in
    ({"|".join(_valued(FOLDERS))}) _files -/; return ;;
    ({"|".join(_valued(FILES))}) _files; return ;;
  esac
  case $command:${{words[CURRENT-1]}} in
{values}  esac
  case $command in
{offers}  esac
  _describe -o longrein offers || _files
}}
if [ "$funcstack[1]" = "_longrein" ]; then _longrein "$@"; else compdef _longrein longrein; fi
"""


def _zsh_offers(command: Command) -> str:
    commands = known_commands()
    told = [(word, commands[word].help if word in commands else "") for word in _words(command)]
    told += [(name, flag.help) for flag in command.flags for name in flag.names]
    return " ".join(_quoted(f"{word}:{_first(text)}" if text else word) for word, text in told)


def _first(text: str) -> str:
    """Return the first sentence of a help text, without the characters that a shell's table
    separates by.
    """
    return text.partition(". ")[0].partition("; ")[0].replace(":", ",").rstrip(".")


def _quoted(text: str) -> str:
    """Quote a text for every shell here."""
    return "'" + text.replace("\\", "").replace("'", "") + "'"


# --- fish -----------------------------------------------------------------------------------------


def fish_script() -> str:
    """Return the script for fish."""
    rows = [
        "# fish completion of longrein; put it to use with: longrein completion fish | source",
        f"set -l commands {' '.join(command.name for command in _subcommands())}",
    ]
    commands = known_commands()
    for command in commands.values():
        seen = (
            f"{'' if command.name else 'not '}__fish_seen_subcommand_from "
            f"{command.name or '$commands'}"
        )
        for word in _words(command):
            told = _first(commands[word].help) if word in commands else ""
            shown = f" -d {_quoted(told)}" if told else ""
            rows.append(f'complete -c longrein -n "{seen}" -f -a {word}{shown}')
        rows += [f'complete -c longrein -n "{seen}" {_fish_flag(flag)}' for flag in command.flags]
    return "\n".join(rows) + "\n"


def _fish_flag(flag: Flag) -> str:
    names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names]
    if flag.choices:
        value = f" -x -a {_quoted(' '.join(flag.choices))}"
    elif flag.kind in ("switch", "maybe"):
        value = ""
    elif flag.metavar in FOLDERS:
        value = " -x -a '(__fish_complete_directories)'"
    else:
        value = " -r" if flag.metavar in FILES else " -x"
    return f"{' '.join(names)}{value} -d {_quoted(_first(flag.help))}"
