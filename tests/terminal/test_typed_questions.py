"""Questions are answered on purpose only: not by a sentence that is under way, not by the rest of
an answer.
"""

import pytest

from longrein.frontends.terminal.answering import QUIET_S
from longrein_context.events import PermissionAnswered, PermissionAsked
from tests.seeds import seeds
from tests.terminal.typist import Typist, sentence_over_questions
from tests.timeouts import HANG_S, until

pytestmark = pytest.mark.anyio
SPACINGS_S = [0.5 * n for n in range(20)]


@pytest.mark.parametrize("part", seeds(60))
async def test_a_sentence_that_is_typed_answers_no_question(part: int) -> None:
    for seed in range(5 * part, 5 * part + 5):
        text, answers = await sentence_over_questions(seed)
        assert answers == [], (seed, text)


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("questions", [1, 2, 3])
@pytest.mark.parametrize("word", ["yes", "no", "y", "n", "nein", "ja", "是", "否", "1"])
async def test_a_word_and_enter_answers_one_question_once(
    word: str, questions: int, half: int
) -> None:
    for spacing_s in SPACINGS_S[half::2]:
        async with Typist(["Bash"] * questions).running() as typist:
            await typist.ask()
            await typist.wait(10 * QUIET_S)
            await typist.type(f"{word}\r", [0.0] + [spacing_s] * len(word))
            await typist.wait(10 * QUIET_S)
            given = [(one.verdict, one.scope) for one in typist.answers]
            verdict = "allow" if word in ("yes", "y", "ja", "是", "1") else "deny"
            assert given == [(verdict, "once")], spacing_s
            assert typist.prompts == [], spacing_s
            assert typist.conversation.buffer.text == "", spacing_s
            assert len(typist.conversation.view.questions) == min(questions - 1, 1)


@pytest.mark.parametrize(
    "text", ["you forgot the tests", "no wait, first", "n ", "1 more", "yesterday"]
)
async def test_a_sentence_that_begins_like_an_answer_is_a_draft(text: str) -> None:
    async with Typist(["Bash"]).running() as typist:
        typist.conversation.guard.hold_s = HANG_S
        await typist.ask()
        await typist.wait(10 * QUIET_S)
        await typist.press(*text)
        assert (typist.answers, typist.conversation.buffer.text) == ([], text)


@pytest.mark.parametrize("text", ["yes\r", "y\r", "no\r"])
async def test_a_word_that_goes_on_at_once_answers_with_enter(text: str) -> None:
    async with Typist(["Bash"]).running() as typist:
        typist.conversation.guard.hold_s = HANG_S
        await typist.ask()
        await typist.wait(10 * QUIET_S)
        await typist.press(*text)
        assert [one.verdict for one in typist.answers] == ["deny" if "n" in text else "allow"]


async def test_a_letter_alone_answers_a_moment_later() -> None:
    async with Typist(["Bash"]).running() as typist:
        typist.conversation.guard.hold_s = 0.01
        await typist.ask()
        await typist.wait(10 * QUIET_S)
        await typist.press("y")
        await until(lambda: typist.answers)


async def test_a_letter_that_is_held_answers_no_later_question() -> None:
    async with Typist(["Bash"]).running() as typist:
        typist.conversation.guard.hold_s = HANG_S
        await typist.ask()
        await typist.wait(10 * QUIET_S)
        await typist.press("y")
        assert typist.conversation.guard.held == "y"
        call = await typist.session.call("Bash", {"command": "rm x"})
        typist.session.append(
            PermissionAnswered("c2.0", "deny", "hook"), PermissionAsked(call, "Bash", "rm x", "why")
        )
        typist.conversation.view.remove_question(typist.conversation.view.questions[0])
        await typist.wait(0.0)
        assert [one.asked.shown for one in typist.conversation.view.questions] == ["rm x"]
        assert typist.conversation.guard.held == ""


async def test_a_letter_that_is_held_is_no_answer_after_esc() -> None:
    async with Typist(["Bash"]).running() as typist:
        typist.conversation.guard.hold_s = HANG_S
        await typist.ask()
        await typist.wait(10 * QUIET_S)
        await typist.press("y", "\x1b")
        assert typist.conversation.guard.held == ""


async def test_edits_that_wait_are_not_allowed_by_the_rest_of_an_answer() -> None:
    async with Typist(["Edit"] * 3).running() as typist:
        await typist.ask()
        await typist.wait(QUIET_S)
        await typist.press(*"yes, also\r")
        await typist.wait(QUIET_S)
        assert [(one.verdict, one.scope) for one in typist.answers] == [("allow", "once")]
        await typist.press("s")
        await typist.wait(1.0)
        assert len(typist.answers) == 1, "the key alone only marks"
        await typist.press("\r")
        assert [one.scope for one in typist.answers] == ["once", "session"]


async def test_a_message_sent_past_a_question_keeps_the_keys_until_esc() -> None:
    async with Typist(["Bash"]).running() as typist:
        await typist.press("o")
        await typist.ask()
        await typist.press(*"nce more\r")
        await typist.wait(60.0)
        await typist.press("n")
        await typist.wait(60.0)
        assert (typist.answers, len(typist.prompts)) == ([], 1)
        await typist.press("\x1b")
        await typist.wait(QUIET_S)
        await typist.press("n")
        assert [one.verdict for one in typist.answers] == ["deny"]
        assert typist.conversation.buffer.text == "n", "the draft stays"
