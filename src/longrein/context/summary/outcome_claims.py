"""Outcome claims in prose ("the tests pass now", "the user approved it"), and the records that
prove them.

The audit searches for names; such a sentence has none. Its clauses are matched against word lists:
something checked or done with a word for the outcome, or the user with a word of consent. What
must, should or may happen is no claim. A claim needs a record of the ledger: a command with that
outcome, a decision, or the user's own message.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

import msgspec

from longrein.context.state.command_results import may_test
from longrein.context.state.ledger import CallRecord, Ledger

Kind = Literal["check", "act", "change", "consent"]
Proof = Literal["proven", "unproven", "refuted"]

STEM_CHARS = (
    5  # Words with so many equal first letters are taken as one word: `deploy`, `deployment`
)
STEM_CHARS_MIN = 4  # Shorter words say too little about what was approved
PIECE_CHARS = 1_000  # A longer sentence is read in pieces of this length
YES_CHARS_MAX = 80  # A longer message that begins with a yes does not prove every consent


class Outcome(msgspec.Struct, frozen=True):
    """Claim that something went well or badly."""

    kind: Kind
    """`check`: tests, builds and the like. `act`: deployed, sent, verified. `change`: fixed or
    made. `consent`: the user agreed or refused.
    """
    good: bool
    commands: str = ""  # Pattern of calls that can prove it; empty for any
    now: bool = True  # True if the claim is about the present, so that a later change matters
    stems: frozenset[str] = frozenset()  # Subject of a consent
    cited: tuple[int, ...] = ()  # Entries named in the sentence


# --- Word lists -----------------------------------------------------------------------------------

_TESTS = "test"
_BUILD = (
    r"build|compil|tsc|cargo|gradle|mvn|ninja|gcc|clang|\bgo\b|webpack|vite|dotnet|bazel|docker"
)
_LINT = r"lint|ruff|flake|clippy|check|format|fmt|black|prettier"
_TYPES = r"mypy|pyright|tsc|type"
_CI = r"\bgh\b|glab|\bci\b|workflow|pipeline|checks?\b|curl"
_DEPLOY = (
    r"deploy|releas|publish|kubectl|helm|terraform|ansible|\bfly|vercel|netlify|docker|twine|npm|ssh|rsync|scp|curl"
    r"|\bgh\b|git push"
)
_MIGRATE = r"migrat|alembic|flyway|sql|manage\.py|prisma|rails"
_INSTALL = r"install|\badd\b|sync|\bpip|npm|yarn|\bapt|brew|cargo|\buv\b"
_VERSIONS = r"\bgit\b|\bgh\b|\bhg\b|glab|\bjj\b"
_RUNNERS = (
    r"\b(?:make|just|task|rake|invoke|tox|nox|npm "
    r"run|yarn|pre-commit)(?:\s+(?:-\S+|all|ci|check|verify|validate|run))*"
    r"\s*(?:$|[;&|])"
)
"""Programs that run all checks: they prove a check if no call names it."""
_ANY = "everything|all|it|fix|patch|changes?|code|implementation|feature|script|command|server|app|things"  # noqa: E501
_CHECKED = (
    (r"\b(?:tests?|test ?suites?|suite|specs?|e2e|pytest|jest)\b", _TESTS),
    (r"\b(?:builds?|compilation|compiler?s?|(?:project|code) compiles)\b", _BUILD),
    (r"\b(?:lint(?:er|ers|ing)?|ruff|eslint|clippy|formatter|formatting)\b", _LINT),
    (r"\b(?:type[- ]?check(?:s|er|ing)?|types|typing|mypy|pyright|tsc)\b", _TYPES),
    (r"\b(?:CI|pipelines?|workflows?|checks?)\b", _CI),
    (r"\b(?:deploy(?:ment|ments|s)?|rollout|release)\b", _DEPLOY),
    (r"\bmigrations?\b", _MIGRATE),
    (r"\b(?:installation|install|upgrade)\b", _INSTALL),
    (r"\bbenchmarks?\b", "bench"),
    (rf"\b(?:{_ANY})\b", ""),
)
"""(subject of a check, calls that check it)."""
_OBJECT = r"(?!\s+(?:an?|the|its?|them|this|that|these|those|one|two|to|through|along|by|over|any|each|\d+)\b)(?!\s+[-\"'(])"  # noqa: E501
_WELL = r"(?:through|well|fine|cleanly|successfully)"
_NOW = r"now|again|fine|well|correctly|as (?:expected|intended|planned)|end[- ]to[- ]end"
_GOOD = (
    rf"\b(?:pass(?:e[sd])?\b{_OBJECT}|succeed(?:s|ed)?\b|compile[sd]?(?=\W*$|\s+(?:now|again|clean|without|fine))"
    rf"|(?:complete[sd]?|finish(?:es|ed)?|ran|runs?|went|goes) {_WELL}|(?:completed|finished) "
    r"without"
    rf"|work(?:s|ed)?(?=\W*$|\s+(?:{_NOW}))"
    r"|(?:no|zero|0|without(?: any)?) (?:errors?|failures?|issues?|problems?|failed)\b)"
)
_WITHOUT = r"\b(?:no|zero|0|without(?: any)?) (?:errors?|failures?|issues?|problems?|failed)\b"
"""Negations that are part of a good outcome."""
_STATE = r"(?:passing|green|clean|ok|okay|fine|successful|working|stable|error-free|good to go)\b"
_BAD = r"\b(?:fail(?:s|ed)?|crash(?:es|ed)|errored|broke)\b"
_BAD_STATE = r"(?:failing|broken|red)\b"
_COPULA = (
    r"\b(?:is|are|was|were|been|now|all|back|looks?|stays?|remains?|still|again)\s+(?:\w+\s+){0,2}?"
)
_DONE = (
    (r"deployed|released|shipped|rolled (?:out|back)|published", _DEPLOY),
    (r"pushed|merged|rebased|cherry-picked|committed|tagged", _VERSIONS),
    (r"migrated", _MIGRATE),
    (r"installed|upgraded", _INSTALL),
    (r"uploaded|sent|emailed|backed up|restored|restarted", ""),
    (r"verified|validated|double-checked|benchmarked|reproduced", ""),
)
_MADE = r"fixed|resolved|solved|implemented|refactored|rewritten"
_PERFECT = (
    r"\b(?:was|were|is|are|has been|have "
    r"been|been|got|I|I've|we|we've|have|has|now|already|successfully)\s+"
    r"(?:\w+ly\s+|now\s+|all\s+)?"
)

_CONSENTED = (
    r"\b(?:approved|authori[sz]ed|consented|permitted|allowed|agreed|accepted|confirmed|okayed|ok'd|green-?lit|endorsed"
    r"|signed off|said yes|g[ai]ven? (?:\w+ "
    r"){0,3}(?:approval|permission|consent|go-ahead|ok|blessing|green light)"
    r"|granted (?:\w+ ){0,3}(?:approval|permission|consent|access)|is (?:fine|ok|okay|happy) "
    r"with|agrees)\b"
)
_USER = r"(?:user|customer|human|operator)"
_SAID = rf"(?:\b(?:the|our|this|your)\s+{_USER}|^\W*{_USER})\b(?:\W+\w+){{0,3}}?\W+"
"""The user as the subject, right before a word of consent."""
_BY_USER = (
    rf"\b(?:the|our|this|your) {_USER}'s (?:\w+ "
    r")?(?:approval|permission|consent|blessing|go-ahead)\b"
    rf"|\bwith {_USER} (?:approval|permission|consent)\b"
)
_REFUSED = r"\b(?:denied|refused|rejected|declined|forbade|vetoed)\b"
_NOBODY = (
    r"\b(?:was|were|is|are|has been|have been|got) (?:\w+ly )?(?:approved|authori[sz]ed|signed "
    r"off)\b"
    r"|\b(?:approval|permission|consent|go-ahead) (?:was|has been|is) "
    r"(?:given|granted|obtained|received)\b"
)
"""Consent without an author, taken as the user's."""


class Language(msgspec.Struct, frozen=True):
    """Word lists of one language."""

    checked: tuple[tuple[str, str], ...]  # (pattern of the subject, pattern of calls that check it)
    good: str
    bad: str
    user: str  # Empty if the next two patterns name the user themselves
    consented: str
    refused: str
    open: str  # Words for what is not so yet; they hold to the end of the sentence
    aside: str  # Words of a condition or a question; they hold for their clause
    negation: str
    state: str = ""  # Adjectives of a good outcome, after a copula or right after the subject
    bad_state: str = ""
    past: str = ""
    report: str = ""  # Words that quote somebody else; a consent needs a record all the same


_ENGLISH = Language(
    _CHECKED,
    _GOOD,
    _BAD,
    r"",
    rf"{_SAID}(?:{_CONSENTED})|(?:{_CONSENTED}).*\b(?:by|from) (?:the |our "
    rf")?{_USER}\b|{_BY_USER}|{_NOBODY}",
    rf"{_SAID}{_REFUSED}|{_REFUSED}.*\bby (?:the |our )?{_USER}\b",
    (
        r"^\W*(?:then |now |first )?(?:verify|check|confirm|run|re-?run|see|get|keep|let)\b"
        r"|\b(?:must|should|shall|will|would|could|may|might|can|cannot|can't|needs?|needed|to "
        r"be|make sure|ensure"
        r"|so that|next|please|todo|plan(?:s|ned)? to|want(?:s|ed)?|goal|expects?|expected "
        r"to|require[sd]?"
        r"|await(?:s|ing)?|pending|remains? to|wait(?:s|ing)? for|not yet|try|trying|going to|let's"
        r"|ask(?:s|ed|ing)? (?:the user )?(?:for|whether|if|to))\b"
    ),
    (
        r"\b(?:if|when|whenever|whether|until|unless|once|before|who|where|assumes?|assumed|assuming|supposed"
        r"|supposedly|in case|how|why|what)\b"
    ),
    r"\b(?:not|never|none|neither|no|nothing)\b|n't\b",
    _STATE,
    _BAD_STATE,
    r"\b(?:passed|succeeded|worked|completed|finished|failed|was|were|had|went|ran|came|crashed|broke)\b",
    r"\b(?:according to|reported|reports? that|says?|said|claims?|claimed|not (?:been "
    r")?run|tests? that)\b",
)
_FOREIGN = (
    Language(  # German
        ((r"\b(?:tests?|testsuite|testlauf)\b", _TESTS),
        (r"\b(?:build|linter|deployment|migration|alles)\b", "")),
        r"l(?:au|äu)f\w* (?:\w+ ){0,3}durch\b|durchgelaufen|\bbest(?:ehen|eht|anden)\b|\bgrün\b|erfolgreich"  # noqa: E501
        r"|funktionier(?:t|en)",
        r"schl(?:agen|ägt|ugen|ug) (?:\w+ ){0,3}fehl\b|fehlgeschlagen|\b(?:ge)?scheiter[nt]\w*\b|\bkaputt\b",  # noqa: E501
        r"\b(?:be)?nutzer(?:in|s)?\b|\banwender\b|\bkunde\b",
        r"genehmigt|zugestimmt|bestätigt|freigegeben|\berlaubt|autorisiert|einverstanden|zustimmung",
        r"abgelehnt|verweigert|verboten",
        r"\b(?:muss|müssen|soll|sollen|sollten?|damit|nächste[rs]?|bitte|wird|werden|sicherstellen|brauch\w*|will|möchte)\b",
        r"\b(?:falls|wenn|bis|ob|sobald|bevor|laut)\b",
        r"\b(?:nicht|kein\w*|nie)\b",
    ),
    Language(  # French
        ((r"\b(?:tests?|suite)\b", _TESTS),
        (r"\b(?:build|compilation|déploiement|migration|pipeline|tout)\b", "")),
        r"\bpass(?:e|ent|é|és|ée|ées)\b|réussi\w*|\bverts?\b|avec succès|\bfonctionne(?:nt)?\b",
        r"échou\w+|\bcassée?s?\b",
        r"\b(?:utilisat(?:eur|rice)|client)\b",
        r"approuvé|confirmé|accepté|autorisé|validé|d'accord|donné son (?:accord|feu vert)",
        r"refusé|rejeté",
        r"\b(?:doit|doivent|devrai\w*|afin|pour que|faut|prochaine?|veut|souhaite|attend\w*|va|vont)\b",  # noqa: E501
        r"\b(?:si|s'il|jusqu\w*|avant|quand|lorsque|selon)\b",
        r"\b(?:pas|jamais|aucune?|non)\b",
    ),
    Language(  # Spanish
        ((r"\b(?:pruebas?|tests?)\b", _TESTS),
        (r"\b(?:compilación|despliegue|migración|build|todo)\b", "")),
        r"\b(?:pasan?|pasó|pasaron)\b|con éxito|exitos[oa]s?|\bverdes?\b|\bfunciona[n]?\b",
        r"\b(?:fallan?|falló|fallaron|rot[oa]s?)\b",
        r"\b(?:usuari[oa]|cliente)\b",
        r"\b(?:aprobó|aprobado|confirmó|aceptó|autorizó|permitió|de acuerdo)\b"
        r"|\bdio (?:su|el) (?:permiso|visto bueno|aprobación)\b",
        r"\b(?:rechazó|negó)\b",
        r"\b(?:debe|deben|debería\w*|para que|hay que|próxim[oa]|espera\w*|quiere|va a)\b",
        r"\b(?:si|hasta|cuando|antes|según)\b",
        r"\b(?:no|nunca|ningun\w*|sin)\b",
    ),
    Language(  # Russian
        ((r"\b(?:тест\w*)", _TESTS),
        (r"\b(?:сборк\w+|линтер\w*|деплой\w*|развёртывани\w+|миграци\w+|вс[её])\b", "")),
        r"\b(?:прошл\w+|проход[яи]т\w*|успешн\w+|зелён\w+|работает)\b",
        r"\b(?:упал\w*|пада[ею]т|провал\w+|сломан\w*)\b",
        r"\b(?:пользовател\w+|клиент\w*)\b",
        r"\b(?:одобрил\w*|подтвердил\w*|согласил\w*|разрешил\w*|утвердил\w*)\b",
        r"\b(?:отклонил\w*|отказал\w*|запретил\w*)\b",
        r"\b(?:нужно|надо|долж\w+|чтобы|следует|далее|ждём|ждать|хочет|будут|будет)\b",
        r"\b(?:если|пока|когда|ли|до)\b",
        r"\b(?:не|нет|ни)\b",
    ),
    Language(  # Chinese
        (("测试|單元測試|測試", _TESTS), ("构建|编译|检查|部署|迁移|流水线|一切", "")),
        "通过|通過|成功|全绿|正常",
        "失败|失敗|出错|崩溃",
        "用户|使用者|用戶",
        "批准|同意|确认了|授权|允许|认可",
        "拒绝|否决|不同意",
        "需要|应该|必须|等待|请|下一步|将|待|确保|计划|要求|希望",
        "如果|是否|直到|之前|才|时",
        "没有|未|不|没",
    ),
    Language(  # Japanese
        (("テスト", _TESTS), ("ビルド|デプロイ|移行|リント|すべて", "")),
        "成功|通過|通って|通った|通りま|パスし",
        "失敗|落ち",
        "ユーザー|利用者",
        "承認|同意|許可し|許可を得",
        "拒否|却下",
        "べき|必要|ください|予定|次に|待ち|確認する",
        "もし|なら|たら|れば|まで|かどうか",
        "ない|ません|なかった|未",
    ),
)  # fmt: skip
_YES = (
    r"\W*(?:yes|yep|yeah|ok|okay|sure|go ahead|go for it|do it|approved?|lgtm|sounds "
    r"good|agreed|fine"
    r"|please do|ja\b|oui|s[ií]\b|sim\b|да|давай|はい|お願い|好的?|可以|是的|同意|承認)"
)
_NOT = (
    r"\b(?:not|never|don't|do "
    r"not|no|without|nicht|kein\w*|nie|pas|jamais|nunca|не|нет)\b|不|没|ない|ません"
)
_STOP = frozenset(
    (
        *(
            "user",
            "users",
            "have",
            "with",
            "that",
            "this",
            "their",
            "them",
            "they",
            "from",
            "been",
            "were",
            "also",
        ),
        *(
            "then",
            "approved",
            "approval",
            "permission",
            "consent",
            "allowed",
            "agreed",
            "accepted",
            "confirmed",
        ),
        *(
            "authorized",
            "given",
            "authorised",
            "permitted",
            "granted",
            "signed",
            "explicitly",
            "already",
            "finally",
        ),
        *(
            "said",
            "gave",
            "denied",
            "refused",
            "rejected",
            "declined",
            "customer",
            "client",
            "human",
            "nutzer",
        ),
        *(
            "benutzer",
            "hat",
            "wurde",
            "genehmigt",
            "zugestimmt",
            "utilisateur",
            "approuvé",
            "accepté",
            "usuario",
        ),
        *("aprobó", "aceptó", "пользователь", "одобрил", "согласился"),
    )
)


# --- Reading a sentence ---------------------------------------------------------------------------

_ASIDES = r"`[^`\n]*`|\"[^\"\n]*\"|“[^”\n]*”|「[^」\n]*」|«[^»\n]*»"
_CLAUSES = r"[;:,，；：、()（）]|\s[-–—]+\s|\b(?:and|but|so|because|which|though|although|while|und|aber|et|mais|y|pero)\b"  # noqa: E501
_CLAUSE_START = (
    20  # A word of outcome this near to the start of a clause belongs to the subject before it
)


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.I)


def _has(pattern: str, text: str) -> bool:
    return bool(pattern) and _pattern(pattern).search(text) is not None


def find_outcomes(sentence: str) -> list[Outcome]:
    """Return the outcomes that `sentence` claims; quotations and code in it are ignored."""
    bare = _pattern(_ASIDES).sub(" ", sentence).strip()
    if bare.endswith(("?", "？", "?**")):
        return []
    cited = tuple(int(seq) for seq in re.findall(r"\br(\d{1,9})\b", bare))
    pieces = [bare[at : at + PIECE_CHARS] for at in range(0, len(bare), PIECE_CHARS)]
    for language in (_ENGLISH, *_FOREIGN):
        found = [outcome for piece in pieces for outcome in _Reader(language, piece, cited).read()]
        if found:
            return found
    return []


class _Reader:
    """Reader of one sentence in one language."""

    def __init__(self, language: Language, sentence: str, cited: tuple[int, ...]) -> None:
        self.language = language
        self.sentence = sentence
        self.cited = cited
        self.found: list[Outcome] = []

    def read(self) -> list[Outcome]:
        """Return the claims, clause by clause."""
        things: list[str] = []
        over = False  # an earlier clause told the outcome of its subject
        for clause in _pattern(_CLAUSES).split(self.sentence):
            if _has(self.language.open, clause):
                break
            own = [commands for name, commands in self.language.checked if _has(name, clause)][:1]
            things = own if over and own else [*things, *own]
            if (
                _has(self.language.aside, clause)
                or self._consent(clause)
                or _has(self.language.report, clause)
            ):
                over = True
            else:
                over = self._ended(clause, things, own=bool(own)) or self._done(clause)
        return self.found

    def _consent(self, clause: str) -> bool:
        words = self.language
        if _has(words.negation, clause) or (words.user and not _has(words.user, clause)):
            return False
        if not (_has(words.consented, clause) or _has(words.refused, clause)):
            return False
        good = not _has(words.refused, clause)
        self.found.append(Outcome("consent", good, stems=stems(self.sentence), cited=self.cited))
        return True

    def _ended(self, clause: str, things: Sequence[str], *, own: bool) -> bool:
        words = self.language
        good, bad = (
            self._word(clause, words.good, words.state),
            self._word(clause, words.bad, words.bad_state),
        )
        at = max(good, bad) if good < 0 or bad < 0 else min(good, bad)
        if at < 0 or not things or not (own or at <= _CLAUSE_START):
            return False
        negated = _has(words.negation, clause) and not (good >= 0 and _has(_WITHOUT, clause))
        well = (good >= 0) != negated
        now = not _has(words.past, clause) or _has(r"\bnow\b", clause)
        self.found += [
            Outcome("check", well, thing, now, cited=self.cited) for thing in dict.fromkeys(things)
        ]
        return True

    def _word(self, clause: str, words: str, state: str) -> int:
        """Return where a word of outcome begins; -1 if there is none."""
        found = _pattern(words).search(clause)
        if found is None and state:
            near = "|".join(name for name, _ in self.language.checked)
            found = _pattern(
                rf"{_COPULA}{state}|^\W*(?:all )?{state}|(?:{near})\W{{1,3}}(?:now |all )?{state}"
            ).search(clause)
        return found.start() if found is not None else -1

    def _done(self, clause: str) -> bool:
        if self.language is not _ENGLISH or _has(self.language.negation, clause):
            return False
        for verbs, commands in _DONE:
            if _has(rf"{_PERFECT}(?:{verbs})\b|^\W*(?:{verbs})\b", clause):
                self.found.append(Outcome("act", True, commands, now=False, cited=self.cited))
                return True
        made = _has(rf"{_PERFECT}(?:{_MADE})\b|^\W*(?:{_MADE})\b", clause)
        self.found += [Outcome("change", True, now=False, cited=self.cited)] * made
        return made


def stems(text: str) -> frozenset[str]:
    """Return the rough subject of a text: beginnings of longer words, and pairs of CJK
    characters.
    """
    words = [
        word
        for word in re.findall(r"[^\W\d_]{4,}", text.lower())
        if not re.search("[\u3040-\u9fff]", word)
    ]
    spaced = {
        word[:STEM_CHARS] for word in words if word not in _STOP and len(word) >= STEM_CHARS_MIN
    }
    gone = re.sub(
        "用户|使用者|用戶|批准|同意|确认了|授权|允许|认可|拒绝|ユーザー|承認|許可|拒否", " ", text
    )
    runs = re.findall(r"[\u3040-\u30ff\u4e00-\u9fff]{2,}", gone)
    return frozenset(spaced | {run[at : at + 2] for run in runs for at in range(len(run) - 1)})


# --- Looking up the record ------------------------------------------------------------------------

_NO_END = ("running", "denied", "not_run")


def outcome_prover(ledger: Ledger, last: int) -> Callable[[Outcome], Proof]:
    """Return a function that checks a claim against the records up to entry `last`."""

    def prove(claim: Outcome) -> Proof:
        if claim.kind == "consent":
            if _consented(ledger, claim, last):
                return "proven"
            if claim.good:
                return "refuted"
            return "unproven"
        if claim.kind == "change" and any(seq <= last for seq, _ in ledger.edits):
            return "proven"
        runs = [ran for ran in ledger.ran.values() if ran.seq <= last and ran.status not in _NO_END]
        checking = _checking(claim, runs)
        cited = [
            ran
            for ran in checking
            if ran.seq in claim.cited or (ran.ended and ran.ended in claim.cited)
        ]
        return _shown(ledger, claim, cited or checking)

    return prove


def _checking(claim: Outcome, runs: list[CallRecord]) -> list[CallRecord]:
    """Return the calls that can prove the claim, oldest first: those that match it, else general
    runners.
    """
    if claim.commands == _TESTS:
        counted = [ran for ran in runs if ran.tests is not None]
        return counted or [ran for ran in runs if may_test(ran.argument)]
    named = [
        ran
        for ran in runs
        if not claim.commands or _has(claim.commands, f"{ran.name} {ran.argument}")
    ]
    every = claim.commands in (_BUILD, _LINT, _TYPES, _CI)
    return named or [ran for ran in runs if every and _has(_RUNNERS, ran.argument)]


def _went_well(ran: CallRecord) -> bool:
    return (
        ran.status in ("ok", "done")
        and ran.code in (0, None)
        and (ran.tests is None or ran.tests.failed == 0)
    )


def _shown(ledger: Ledger, claim: Outcome, runs: list[CallRecord]) -> Proof:
    well = [ran for ran in runs if _went_well(ran)]
    if not claim.good:
        failed = (
            len(well) < len(runs)
            or bool(ledger.troubles)
            or any(test.failed for test in ledger.tests.values())
        )
        return "proven" if failed else "unproven"
    if not well:
        return "refuted" if runs else "unproven"
    newest = runs[-1]
    if not claim.now:
        return "proven"
    since = max(newest.seq, newest.ended)
    changed = claim.kind == "check" and any(seq > since for seq, _ in ledger.edits)
    return "proven" if _went_well(newest) and not changed else "unproven"


def _consented(ledger: Ledger, claim: Outcome, last: int) -> bool:
    decided = [one for one in ledger.decisions if one.seqs and one.seqs[-1] <= last]
    if any(
        _about(claim, one.text) and ("the user denied" not in one.text) == claim.good
        for one in decided
    ):
        return True
    said = (word.text for word in ledger.words if word.seq <= last)
    return any(
        _agreed(claim, sentence)
        for text in said
        for sentence in re.split(r"(?<=[.!?])\s|[\n。！？]", text)
    )


def _agreed(claim: Outcome, said: str) -> bool:
    """True if a sentence of the user proves the claimed consent or refusal."""
    if _has(_NOT, said):
        return not claim.good and _about(claim, said)
    if not claim.good:
        return False
    yes = len(said) <= YES_CHARS_MAX and _pattern(_YES).match(said) is not None
    return yes or (bool(claim.stems) and _about(claim, said))


def _about(claim: Outcome, text: str) -> bool:
    return not claim.stems or bool(claim.stems & stems(text))
