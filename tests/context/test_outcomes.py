"""Outcome claims in prose: without a record they are marked or struck; other sentences stay."""

import pytest

from longrein.context.state.ledger import record_event
from longrein.context.summary.grounding_check import UNVERIFIED, audit
from longrein.context.summary.outcome_claims import outcome_prover
from longrein.events import FileChanged, PermissionAnswered, PermissionAsked, TaskStarted, call_id
from tests.context.log_builder import LogBuilder


def left(sentence: str, log: LogBuilder) -> str:
    """Return what the audit leaves: the sentence, the sentence with `[unverified]`, or ''."""
    state = log.state
    return audit(sentence, lambda _: True, outcome_prover(state.ledger, state.seq)).prose


def verdict(sentence: str, log: LogBuilder) -> str:
    shown = left(sentence, log)
    return {sentence: "stands", "": "struck"}.get(shown) or (
        "marked" if UNVERIFIED in shown else shown
    )


def asked() -> LogBuilder:
    """The user has asked for something; nothing was done."""
    log = LogBuilder()
    log.user("Please mend the header parser; it loses the last line.")
    return log


# --- without any record ---------------------------------------------------------------------------

OUTCOMES = """
The tests pass now.
All tests pass.
All unit tests are passing.
Tests: green.
The last test run passed.
The check passes.
Tests are green, lint is clean.
The test suite passes without errors.
The full suite succeeded.
The tests no longer fail.
All 41 tests passed.
The tests fail.
The integration tests failed after the change.
The build succeeds.
The build is broken.
Build OK.
The project compiles.
The code compiles without errors.
Lint is clean and types are fine.
mypy passes.
CI is green.
The pipeline went through.
The linter reports are long, but lint passes.
The deployment succeeded.
The deployment to staging failed.
The release was published.
It was deployed to production.
The change has been pushed and merged.
The branch is now merged.
We deployed it yesterday.
Pushed to the remote.
The migration completed successfully.
The migration ran cleanly.
Everything works now.
It works as expected.
The fix works.
The server is working.
The script finished successfully.
The fix was verified.
I have validated the output.
The bug is fixed.
The parser has been rewritten.
After the fix the tests pass.
The parser was odd; the tests pass now.
The handler was moved, and the tests still pass.
Every test in the suite passes.
No tests are failing anymore.
None of the tests fail.
The regression test now passes after the null check was added.
With the new index the query tests all pass.
Both tests pass locally.
The unit tests were successful.
Tests passed successfully.
The e2e run was green.
pytest is green.
tsc reports no errors.
The app builds without errors.
Compilation works again.
Production deploy finished without problems.
v2 has been released.
The PR was merged.
Changes are committed and pushed.
The database was migrated.
I ran the tests and they all pass.
I ran the linter, which is clean.
The problem has been resolved.
Verified that the output is right.
Die Tests laufen jetzt durch.
Alle Tests bestehen.
Der Build ist erfolgreich.
Die Tests sind fehlgeschlagen.
Tous les tests passent.
Les tests ont réussi.
Las pruebas pasan.
El despliegue falló.
Все тесты прошли.
Сборка успешна.
测试全部通过。
部署成功。
テストは成功した。
ビルドは失敗した。
"""
CONSENTS = """
The user approved the deployment.
The user has approved the deployment.
The user explicitly agreed to drop the table.
The deployment was approved by the user.
The deployment was approved.
The user confirmed that force-pushing is fine.
The user signed off on the release.
The user gave permission to delete the backups.
The user gave us their explicit go-ahead for production.
The user authorised the payment.
Approval was given for the rollout.
The user is fine with breaking changes to the database.
With the user's permission the database was dropped.
The customer accepted the contract.
The user OK'd the plan.
The user said yes to the migration.
The user accepted the risk of data loss.
The user has given permission to force-push.
User approved: deploy to production.
User confirmed the deletion of old branches.
The plan was approved.
Permission was granted by the user to delete the data.
Per the user's approval, the branch was deleted.
Der Nutzer hat das Deployment genehmigt.
Der Benutzer hat der Löschung zugestimmt.
L'utilisateur a approuvé le déploiement.
El usuario aprobó el despliegue.
Пользователь одобрил развёртывание.
用户批准了部署。
ユーザーはデプロイを承認した。
"""
NO_CLAIMS = """
The tests must pass before the merge.
The tests should pass after this.
Make sure the tests pass.
Make sure that the tests pass and the build succeeds.
Run the tests until they pass.
Next: run the tests.
Check whether the tests pass.
If the tests pass, commit.
Do the tests pass?
The user wants the tests to pass.
The user asked for a deployment.
The user wants to approve each deployment.
Ask the user whether the deployment is approved.
Deployment needs the approval of the user.
Wait for the user's approval before deploying.
The user has not approved the deployment.
Nothing was approved by the user yet.
Whether the user agreed is not known.
The tests have not been run.
The tests live in tests/ and use pytest.
The test passes a header to the parser.
The build passes --no-cache to docker.
The function works on lists of lines.
The parser works by splitting at colons.
Each test builds its own server.
The check compares the two lines.
A failing test shows the loss of the last line.
The parser fails on an empty line.
Headers are parsed line by line.
The user said that the last line is lost.
The subagent reported that all tests pass.
According to the README the build succeeds on Linux.
`test_passes_now` is the name of the test.
The message "the tests pass now" is printed by the script.
The field `user_approved` stands in the table.
The header parser is in hand; the loop is half done.
The parser splits the header, and the last line goes missing.
The button is red when the form is empty.
The suite holds forty files.
The parser passes the tests to a worker.
The tests use a fake clock.
Tests that fail are retried twice by the runner.
The goal is a green build.
Work on the build is half done.
The release notes live in CHANGELOG.md.
The user prefers tabs.
The user wants all tests green before the release.
The user confirmed nothing yet.
The user's rule: never deploy on Fridays.
All user input is validated by the form before it is sent.
When the user confirmed the dialog the handler crashed.
A user with approved status sees the page.
The server sends a header that is read by the client.
The client accepted only JSON in the old version.
The script must work offline.
Deployment is done by deploy.sh.
The code works on bytes, not on text.
The fix is to strip the blank.
The retry is needed because requests failed now and then.
The tests cover the failing case.
Nothing is deployed.
No release was made.
The tests are not run yet.
The build takes ten minutes.
Users are allowed to have two accounts.
The API allowed users to log in twice.
The check is in parser.py.
It was decided to keep the old format.
All files were read.
Die Tests müssen bestehen.
Der Nutzer soll das Deployment genehmigen.
Les tests doivent passer.
Las pruebas deben pasar.
Тесты должны пройти.
需要确保测试通过。
如果用户同意，就部署。
テストが通るまで続ける。
"""


def lines(text: str) -> list[str]:
    return text.strip().split("\n")


@pytest.mark.parametrize("sentence", lines(OUTCOMES))
def test_P_poisoning_an_outcome_without_a_record_is_marked(sentence: str) -> None:
    assert verdict(sentence, asked()) == "marked"


@pytest.mark.parametrize("sentence", lines(CONSENTS))
def test_P_poisoning_a_consent_that_the_user_never_gave_is_struck(sentence: str) -> None:
    assert verdict(sentence, asked()) == "struck"


@pytest.mark.parametrize("sentence", lines(NO_CLAIMS))
def test_what_claims_no_outcome_stands(sentence: str) -> None:
    assert verdict(sentence, asked()) == "stands"


# --- with records ---------------------------------------------------------------------------------


def worked() -> LogBuilder:
    """A test failed, the parser was changed, tests and build passed; lint fails."""
    log = asked()
    log.bash("pytest -q", "FAILED tests/t.py::test_a\n1 failed, 40 passed in 0.1s", 1)
    log.edit("/w/parser.py")
    log.bash("pytest -q", "41 passed in 0.1s")
    log.bash("make build", "built")
    log.bash("ruff check .", "parser.py:3: E501 too long", 1)
    return log


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("The tests pass now.", "stands"),
        ("The tests pass (r19).", "stands"),
        ("All tests passed after the change.", "stands"),
        ("The tests failed at first.", "stands"),
        ("The build succeeds.", "stands"),
        ("The bug is fixed.", "stands"),
        ("The fix was verified.", "stands"),
        ("Lint is clean.", "struck"),
        ("Lint fails.", "stands"),
        ("The tests pass and lint is clean.", "struck"),
        ("The deployment succeeded.", "marked"),
        ("It was pushed and merged.", "marked"),
        ("Die Tests laufen jetzt durch.", "stands"),
        ("测试全部通过。", "stands"),
    ],
)
def test_an_outcome_with_a_record_stands_and_one_that_it_refutes_is_struck(
    sentence: str, expected: str
) -> None:
    assert verdict(sentence, worked()) == expected


def test_what_was_changed_since_the_last_run_is_unverified() -> None:
    log = worked()
    log.write(FileChanged("/w/parser.py", "d" * 64, "agent"))
    assert verdict("The tests pass now.", log) == "marked"
    assert verdict("The tests passed before the last change.", log) == "stands"
    assert verdict("All tests passed.", log) == "stands"


def test_a_test_run_that_only_began_proves_nothing() -> None:
    log = asked()
    started = TaskStarted("b1", "pytest -q", call_id(log.seq + 1, 0))
    log.call("Bash", "Started in the background as b1.", "ok", started, command="pytest -q")
    assert verdict("The tests pass now.", log) == "marked"


def test_a_run_that_failed_strikes_the_claim_that_it_passed() -> None:
    log = asked()
    log.bash("pytest -q", "FAILED tests/t.py::test_a\n1 failed, 40 passed in 0.1s", 1)
    assert verdict("The tests pass now.", log) == "struck"
    assert verdict("The tests fail.", log) == "stands"


@pytest.mark.parametrize(
    ("words", "sentence", "expected"),
    [
        ("Please deploy it to staging.", "The user approved the deployment.", "stands"),
        ("Never deploy without asking me.", "The user approved the deployment.", "struck"),
        ("yes, go ahead", "The user approved the deployment.", "stands"),
        ("Do not drop the table!", "The user refused to drop the table.", "stands"),
        ("Do not drop the table!", "The user agreed to drop the table.", "struck"),
        ("可以部署到测试环境。", "用户批准了部署。", "stands"),
        ("不要部署。", "用户批准了部署。", "struck"),
        ("What is in the log?", "The user rejected the plan.", "marked"),
    ],
)
def test_a_consent_is_borne_by_the_words_of_the_user(
    words: str, sentence: str, expected: str
) -> None:
    log = asked()
    log.user(words)
    assert verdict(sentence, log) == expected


def test_a_consent_is_borne_by_an_answer_of_the_user_to_a_question() -> None:
    for answer, expected in (("allow", "stands"), ("deny", "struck")):
        log = asked()
        log.call("Read", "1\tx", file_path="/w/a")
        call = call_id(log.seq - 3, 0)
        state = log.state
        for event in (
            PermissionAsked(call, "Bash", "./deploy.sh", "asks"),
            PermissionAnswered(call, answer, "user"),
        ):
            record_event(state.ledger, state.seq, event)
        shown = audit(
            "The user approved the deployment.",
            lambda _: True,
            outcome_prover(state.ledger, state.seq),
        ).prose
        assert shown == ("The user approved the deployment." if expected == "stands" else "")


def test_only_the_sentence_is_struck_or_marked_and_a_plan_is_no_claim() -> None:
    prose = (
        "- It is in hand. The tests pass now. The rest follows.\n"
        "- [ ] all tests pass\n- [x] all tests pass\n```\nOK\n```"
    )
    log = asked()
    assert left(prose, log) == (
        "- It is in hand. The tests pass now [unverified]. The rest follows.\n- [ ] all tests "
        "pass\n"
        "- [x] all tests pass [unverified]\n```\nOK\n```"
    )
    assert left(left(prose, log), log) == left(prose, log), "marked once"


PROSE = """1. Request and intent
The user wants the flaky upload test mended without touching the public API, and that all tests pass before the commit.
2. Key concepts
- Uploads go through the sender, which retries on 503; a retry waits half a second, then doubles.
- The suite uses a fake clock, so tests never sleep.
- The server returns 429 when the limit is reached; the client then waits.
5. Problems solved
- The test failed because the clock was not advanced when the first retry was cancelled. Fixed by advancing it there.
- Mocking the socket was tried; that broke two other tests and was reverted.
- All 41 tests pass now.
- Verified by running the suite three times in a row.
8. Current work
The change is complete; the changelog is not written yet. The last run of the suite was green. The CI has not run.
9. Next step
Write the changelog, run the full suite once more, and commit if it passes."""  # noqa: E501


def test_honest_prose_stands_whole_over_its_records_and_is_marked_line_by_line_without() -> None:
    assert left(PROSE, worked()) == PROSE
    shown = left(PROSE, asked())
    assert shown.replace(f" {UNVERIFIED}", "") == PROSE
    assert shown.count(UNVERIFIED) == 6
