"""The window around the screen: title, bell and notifications, progress, background colour.

Everything is switched on by `enter` and undone by `leave`, also while another program has the
terminal.
"""

import re
from collections.abc import Callable, Mapping

import msgspec

from longrein.frontends.localization import translate
from longrein.frontends.terminal import themes
from longrein.settings_schema import TerminalOptions
from longrein.steps.human_text import escape_line
from longrein_context.events.escape import shortened, whole_number

ST = "\x1b\\"
FOCUS_ON, FOCUS_OFF = "\x1b[?1004h", "\x1b[?1004l"
TITLE_KEPT, TITLE_RESTORED = "\x1b[22;0t", f"\x1b]2;{ST}\x1b[23;0t"
"""The stack of titles; a terminal without one gets an empty title, which most take for their
own.
"""
BACKGROUND_ASKED = f"\x1b]11;?{ST}"
PROGRESS = {"": "0;0", "working": "3;0", "waiting": "4;100"}
"""State -> OSC 9;4: none, no end known, paused."""
PROGRESS_AGAIN_S = 5.0
"""Some terminals drop the progress of a program that has fallen silent."""
TITLE_CHARS_MAX = 60
VTE_WITH_PROGRESS = 7_900
ITERM_WITH_PROGRESS = (3, 6, 6)


class Activity(msgspec.Struct, frozen=True):
    """Activity of the session, as far as the window shows it."""

    title: str
    """Title of the session; '' before the first prompt."""
    state: str
    """`working`, `waiting` for an answer, or '' when idle."""
    question: str = ""
    """The question that waits, such as `Bash`."""
    question_id: object = None
    """The same for the same question; None without one."""
    turn_since_s: float = 0.0
    """Start of the present or last turn, monotonic seconds."""


class TerminalWindow:
    """Title, notifications, progress and theme of one terminal. Writes nothing unless `enabled`."""

    def __init__(
        self,
        write: Callable[[str], None],
        options: TerminalOptions,
        environ: Mapping[str, str],
        mono_s: Callable[[], float],
        *,
        enabled: bool,
    ) -> None:
        self._write = write
        self._options = options
        self._environ = environ
        self._mono_s = mono_s
        self._enabled = enabled
        self._entered = False
        self._title = self._state = ""
        self._question_id: object = None
        self._question_since_s = 0.0
        self.call_pending = False
        """True while a question waits to which the user has not been called."""
        self._progress_s = 0.0
        self._has_progress = shows_progress(options.progress, environ)
        self.has_focus: bool | None = None
        """None until the terminal has told it."""
        self.last_key_s = mono_s()
        self.theme = themes.chosen() or options.theme
        """The theme as chosen; `auto` follows the background."""

    # --- On and off -------------------------------------------------------------------------------

    def enter(self) -> None:
        """Switch on what the settings ask for. Nothing waits for an answer of the terminal."""
        use_first_theme(self.theme, self._environ)
        if self._enabled and not self._entered:
            self._entered = True
            self._put(TITLE_KEPT * self._options.title + FOCUS_ON * (self._options.notify != "off"))
            self.ask_background()

    def ask_background(self) -> None:
        """Ask the terminal for its background where the theme depends on it."""
        known = themes.guessed_theme(self._environ) or self._environ.get("TERM") == "linux"
        if self._enabled and self.theme == "auto" and not known:
            self._put(BACKGROUND_ASKED)

    def leave(self) -> None:
        """Undo all of it: title, focus events and progress are as before."""
        if self._entered:
            self._entered = False
            progress = f"\x1b]9;4;{PROGRESS['']}{ST}" if self._has_progress and self._state else ""
            self._put(
                progress
                + FOCUS_OFF * (self._options.notify != "off")
                + TITLE_RESTORED * self._options.title
            )
            self._title = self._state = ""

    def _put(self, text: str) -> None:
        if text:
            self._write(text)

    # --- What the session does --------------------------------------------------------------------

    def update(self, now: Activity) -> None:
        """Show a new state: the title and progress if they change, a notification if the user is
        away at the end of a long turn or from a question that has waited.
        """
        if not self._entered:
            return
        if self._options.title and (title := window_title(now)) != self._title:
            self._title = title
            self._put(f"\x1b]2;{title}{ST}")
        self._update_progress(now.state)
        if now.question_id != self._question_id:
            self._question_id, self._question_since_s = now.question_id, self._mono_s()
            self.call_pending = bool(now.question) and self._options.notify != "off"
        if self.call_pending:
            waited_s = self._mono_s() - self._question_since_s
            if waited_s >= self._options.notify_after_s and self.is_away:
                self.call_pending = False
                self._notify(f"{translate('waiting for you')}: {now.question}")
        elif (
            self._state
            and not now.state
            and self._mono_s() - now.turn_since_s >= self._options.notify_after_s
        ):
            self._notify(f"{translate('done')}: {now.title}" if now.title else translate("done"))
        self._state = now.state

    def _update_progress(self, state: str) -> None:
        due = state != self._state or (
            state and self._mono_s() - self._progress_s > PROGRESS_AGAIN_S
        )
        if self._has_progress and due:
            self._progress_s = self._mono_s()
            self._put(f"\x1b]9;4;{PROGRESS[state]}{ST}")

    @property
    def is_away(self) -> bool:
        """True if the user looks elsewhere: no focus, or, where the terminal does not tell, no
        key for a while.
        """
        if self.has_focus is not None:
            return not self.has_focus
        return self._mono_s() - self.last_key_s >= self._options.notify_after_s

    def _notify(self, text: str) -> None:
        how = self._options.notify
        if self.is_away and how != "off":
            bell = "\x07" if how in ("all", "bell") else ""
            self._put(
                (notification(text, self._environ) if how in ("all", "message") else "") + bell
            )

    # --- What the terminal tells ------------------------------------------------------------------

    def heard(self, answer: str) -> bool:
        """Take an answer of the terminal: `I` and `O` for the focus, else a colour. True if the
        theme has changed.
        """
        if answer in ("I", "O"):
            self.has_focus = answer == "I"
            return False
        light = themes.is_light(answer)
        if self.theme != "auto" or light is None:
            return False
        return self._use(themes.theme_for(light=light, environ=self._environ))

    def pressed(self) -> None:
        """Take note of a key. It refutes a report that the focus is lost."""
        self.last_key_s = self._mono_s()
        self.has_focus = self.has_focus or None

    def choose_theme(self, name: str) -> None:
        """Use a theme of `themes.NOTES` from now on."""
        self.theme = name
        themes.choose(name)
        use_first_theme(name, self._environ)
        self.ask_background()

    @staticmethod
    def _use(name: str) -> bool:
        before = themes.theme_in_use()
        themes.use_theme(name)
        return name != before


def use_first_theme(name: str, environ: Mapping[str, str]) -> None:
    """Use a theme at once; `auto` without COLORFGBG begins with the colours of the terminal."""
    themes.use_theme((themes.guessed_theme(environ) or "ansi") if name == "auto" else name)


def window_title(now: Activity) -> str:
    """Title of the window: state, session, program."""
    title = shortened(escape_line(now.title.strip().partition("\n")[0]), TITLE_CHARS_MAX)
    return " · ".join(
        part for part in (translate(now.state) if now.state else "", title, "longrein") if part
    )


def notification(text: str, environ: Mapping[str, str]) -> str:
    """The sequence that lets the terminal show a message: OSC 9 or OSC 777, in tmux passed
    through.
    """
    body = shortened(escape_line(text), TITLE_CHARS_MAX).replace(";", ",")
    speaks_9 = (
        environ.get("TERM_PROGRAM") in ("iTerm.app", "WezTerm", "ghostty")
        or "KITTY_WINDOW_ID" in environ
    )
    sequence = (
        f"\x1b]9;longrein: {body}{ST}" if speaks_9 else f"\x1b]777;notify;longrein;{body}{ST}"
    )
    return (
        f"\x1bPtmux;{sequence.replace(chr(27), chr(27) * 2)}{ST}"
        if environ.get("TMUX")
        else sequence
    )


def shows_progress(wanted: str, environ: Mapping[str, str]) -> bool:
    """Return whether OSC 9;4 is sent. Some terminals take it for a notification, so `auto` names
    those that know it.
    """
    if wanted != "auto" or environ.get("TMUX"):
        return wanted == "on"
    version = tuple(map(whole_number, re.findall(r"\d+", environ.get("TERM_PROGRAM_VERSION", ""))))
    program, vte = environ.get("TERM_PROGRAM", ""), environ.get("VTE_VERSION", "")
    return (
        bool(environ.get("WT_SESSION"))
        or environ.get("ConEmuANSI") == "ON"
        or program == "ghostty"
        or (program == "iTerm.app" and version >= ITERM_WITH_PROGRESS)
        or whole_number(vte) >= VTE_WITH_PROGRESS
    )
