"""Lossless decoding of text files: UTF-8, UTF-16, encodings of East Asia and Western Europe.

`decode_text` returns None for a binary file. For every other file the text, encoded again with
`encode_text`, gives the same bytes. The encoding of a file without a byte order mark that is not
UTF-8 is a guess: the encoding in which most of its characters are letters that people use often.
"""

import codecs
import re

import msgspec

PRINTABLE = bytes([9, 10, *range(32, 127)])
"""Bytes of ASCII text that need no cleaning."""
HARMLESS = PRINTABLE + bytes(range(128, 256))
"""Bytes that need no cleaning when text is not only ASCII."""
LINE_BYTES = HARMLESS + b"\r"
"""Bytes of a text file without special characters."""
BOMS = {
    "utf-8": codecs.BOM_UTF8,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
}
SAMPLE_BYTES = 8192
"""Start of a file that shows what is in it."""
GUESSED_BYTES = 1 << 14
"""Text from the first character that is not ASCII on by which the encoding is guessed."""
WIDE_CHARS = r"[\t\n\r -~\u2010-\u2026\u3000-\u30ff\u4e00-\u9fff\uac00-\ud7a3\uff01-\uffe5]"
"""Usual characters of East Asian text."""


class DecodedText(msgspec.Struct, frozen=True):
    """Text of a file and how it was encoded."""

    text: str
    """Whole text without the byte order mark. Invalid bytes are lone surrogates."""
    encoding: str
    """A name that Python's codecs know, such as `utf-8`, `gbk` or `latin-1`."""
    bom: bytes = b""
    """Byte order mark at the start."""
    broken: bool = False
    """True for UTF-8 with invalid bytes."""


def decode_text(data: bytes) -> DecodedText | None:
    """Decode a text file; None for a binary one."""
    wide = wide_encoding(data)
    if wide:
        bom = BOMS[wide] if data.startswith(BOMS[wide]) else b""
        if len(data) % 2:
            return None
        return DecodedText(data[len(bom) :].decode(wide, "surrogatepass"), wide, bom)
    if b"\0" in data:
        return None
    bom = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    body = data[len(bom) :]
    try:
        return DecodedText(body.decode(), "utf-8", bom)
    except UnicodeDecodeError:
        pass
    sample = body[:SAMPLE_BYTES]
    if len(sample.translate(None, LINE_BYTES + b"\x0c\x1b")) * 20 > len(sample):
        return None  # too many control characters for text of any encoding
    return _decode_legacy(body, bom)


def is_binary(data: bytes) -> bool:
    """Return True if the start of a file holds a NUL and is no UTF-16."""
    return b"\0" in data[:SAMPLE_BYTES] and not wide_encoding(data)


def encode_text(text: str, encoding: str) -> bytes:
    """Encode text of `decode_text`. Raises `UnicodeEncodeError` for the first character that the
    encoding lacks, also for one that would be read as another.
    """
    if encoding.startswith("utf-16"):
        return text.encode(encoding, "surrogatepass")
    data = text.encode(encoding, "surrogateescape")
    if encoding != "utf-8" and (again := data.decode(encoding, "surrogateescape")) != text:
        at = next(i for i, char in enumerate(text) if again[i : i + 1] != char)
        raise UnicodeEncodeError(encoding, text, at, at + 1, "it would be read as another one")
    return data


def wide_encoding(data: bytes) -> str:
    """Detect `utf-16-le` or `utf-16-be` by a BOM, the positions of NULs, or East Asian text; ''
    for other encodings.
    """
    if data.startswith(b"\xff\xfe") and not data.startswith(b"\xff\xfe\0\0"):
        return "utf-16-le"
    if data.startswith(b"\xfe\xff"):
        return "utf-16-be"
    sample = data[:512]
    if len(sample) < 8 or b"\0" not in sample:
        return ""
    half = len(sample) // 2
    low, high = sample[0::2].count(0), sample[1::2].count(0)
    if high > half * 0.7 and low < half * 0.1:
        return "utf-16-le"
    if low > half * 0.7 and high < half * 0.1:
        return "utf-16-be"
    if is_utf8_start(sample):
        return ""  # texts with NULs between them
    usual = {}
    for name in ("utf-16-le", "utf-16-be"):
        text = sample[: half * 2].decode(name, "replace")
        usual[name] = len(re.findall(WIDE_CHARS, text)) / len(text)
    best = max(usual, key=usual.__getitem__)
    return best if usual[best] > 0.95 and len(set(usual.values())) == 2 else ""


def is_utf8_start(data: bytes) -> bool:
    """Return True for UTF-8 whose last character may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return True


# --- Guess of an 8-bit or East Asian encoding -----------------------------------------------------
#
# A wrong encoding gives rare characters: each encoding of East Asia has its usual characters in one
# range of first bytes, and a few dozen of them make up a third of every text. Bytes of Western
# European text stand alone between ASCII letters.


class _Candidate(msgspec.Struct, frozen=True):
    names: tuple[str, ...]
    """Codecs, from the common one to its extensions."""
    usual: bytes
    """Regular expression of the characters of everyday text."""
    frequent: frozenset[str]


def _candidate(names: str, usual: bytes, frequent: str) -> _Candidate:
    return _Candidate(tuple(names.split()), usual, frozenset(frequent))


KANA = "".join(map(chr, (*range(0x3041, 0x3094), *range(0x30A1, 0x30FD))))
PUNCTUATION = "、。，：；！？（）「」『』《》【】“”・　"
_CANDIDATES = (
    _candidate(
        "gbk gb18030",
        rb"[\xb0-\xd7][\xa1-\xfe]|\xa1[\xa2-\xbf]|\xa3[\xa1-\xfe]",
        PUNCTUATION
        + "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下"
        "自之年过发后作里用道行所然家种事成方多经么去法学如都同现当没动面起看定天分还进好小部"
        "其些主样理心本前开但因只从想实日文件函数据返回错误测试配置设默认请输入名称密码用户使"
        "选项信息参类型系统程序编译检查目录路径无不能打开失败字符串值获取添加删除修改新读写置"
        "第",
    ),
    _candidate(
        "cp950 big5hkscs",
        rb"[\xa4-\xc6][\x40-\x7e\xa1-\xfe]|\xa1[\x40-\x7e\xa1-\xfe]|\xa2[\xa1-\xfe]",
        PUNCTUATION
        + "的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得於著下"
        "自之年過發後作裡用道行所然家種事成方多經麼去法學如都同現當沒動面起看定天分還進好小部"
        "其些主樣理心本前開但因只從想實日文件檔案函數資料返回錯誤測試設定預請輸入名稱密碼使選"
        "項訊息參類型系統程式編譯檢查目錄路徑無法打開失敗字串值取得新增刪除修改讀寫第二",
    ),
    _candidate(
        "cp932",
        rb"\x82[\x4f-\xf1]|\x83[\x40-\x96]|[\x88-\x97][\x40-\x7e\x80-\xfc]|\x81[\x40-\x7e]",
        PUNCTUATION
        + KANA
        + "ー日本一人年大十二中出三時行見月後前生五間上東四今金九入学高円子外八六下来気小七山話"
        "女北午百書先名川千水設定文字処理関数値返用実行表示使可能不場合指定変更入力出力画面開"
        "始終了確認新規作成削除追加検索対象取得",
    ),
    _candidate(
        "cp949",
        rb"[\xb0-\xc8][\xa1-\xfe]|\xa1[\xa2-\xbf]|\xa3[\xa1-\xfe]",
        PUNCTUATION
        + "이다는을를에의가고하지한은로기사도대해정리어아그자인수들나서시있부보장제일여전주상으"
        "면원요것라만스조공과동게연구물우선성소경소오신유비화적없된안할행설파테트함변입력출호"
        "환값반록목용내되모든중또류못습니까음법글국",
    ),
    _candidate(
        "euc_jp",
        rb"[\xa4\xa5][\xa1-\xf6]|[\xb0-\xcf][\xa1-\xfe]|\xa1[\xa2-\xdf]",
        PUNCTUATION
        + KANA
        + "ー日本一人年大中出時行見月後前生上東今入学高子外下来気小書先名設定文字処理関数値返用"
        "実表示",
    ),
)
_WESTERN = (
    rb"(?<=[A-Za-z])[\x8a\x8c\x8e\x9a\x9c\x9e\x9f\xaa\xba\xc0-\xd6\xd8-\xf6\xf8-\xff](?![\x80-\xff])"
    rb"|(?<![\x80-\xff])[\x8a\x8c\x8e\x9a\x9c\x9e\x9f\xc0-\xd6\xd8-\xf6\xf8-\xff](?=[A-Za-z])"
    rb"|(?<![\x80-\xff])[\x80\x82\x84\x85\x91-\x97\x99\xa0-\xbf\xd7\xe0\xf7](?![\x80-\xff])"
)
"""A letter of Western Europe beside one of ASCII, or a sign by itself."""
USUAL_MIN = 0.6
"""Share of usual characters below which a text is none of East Asia."""
FREQUENT_MIN = 0.03
"""Share of frequent characters that every text of `LONG_CHARS` has."""
LONG_CHARS = 30
BROKEN_MAX = 0.02
"""Share of invalid bytes that a text may have."""


def _decode_legacy(data: bytes, bom: bytes) -> DecodedText:
    """Decode what is not valid UTF-8: UTF-8 with invalid bytes, East Asian, Western or Latin-1."""
    text = data.decode("utf-8", "surrogateescape")
    bad = _broken(text)
    if len(text) - len(text.encode("ascii", "ignore")) > 2 * bad:
        return DecodedText(text, "utf-8", bom, broken=True)
    whole = bom + data
    first = len(data) - len(data.lstrip(bytes(range(128))))
    sample = data[max(0, first - 1) :][:GUESSED_BYTES]
    scores = {each.names: _score(sample, each) for each in _CANDIDATES}
    best = max(scores, key=scores.__getitem__)
    western = len(re.findall(_WESTERN, sample)) / len(sample.translate(None, bytes(range(128))))
    if scores[best] > max(USUAL_MIN, western):
        texts = [(name, whole.decode(name, "surrogateescape")) for name in best]
        name, text = min(texts, key=lambda one: _broken(one[1]))
        if _broken(text) <= BROKEN_MAX * len(text) and _returns(text, name, whole):
            return DecodedText(text, name)
    if re.search(rb"[\x80-\x9f]", whole) and not re.search(rb"[\x81\x8d\x8f\x90\x9d]", whole):
        return DecodedText(whole.decode("cp1252"), "cp1252")
    return DecodedText(whole.decode("latin-1"), "latin-1")


def _broken(text: str) -> int:
    """Return the number of invalid bytes in a text."""
    return len(text) - len(text.encode("utf-32-le", "ignore")) // 4


def _returns(text: str, encoding: str, data: bytes) -> bool:
    """Return True if `text` encoded again is `data`."""
    try:
        return encode_text(text, encoding) == data
    except UnicodeEncodeError:
        return False


def _score(sample: bytes, candidate: _Candidate) -> float:
    """Rate a sample: about 1 for everyday text of the candidate, 0 for no text of it."""
    name = candidate.names[-1]
    text = codecs.getincrementaldecoder(name)("surrogateescape").decode(sample)
    chars = re.sub("[\0-\x7f]", "", text)
    if not chars:
        return 0.0
    broken = _broken(chars)
    usual = frequent = 0
    for char in chars:
        if char in candidate.frequent:
            frequent += 1
        elif re.fullmatch(candidate.usual, char.encode(name, "surrogateescape")):
            usual += 1
    if len(chars) >= LONG_CHARS and frequent < FREQUENT_MIN * len(chars):
        return 0.0  # such as Russian in KOI8-R
    kana = len("".join(re.findall("[\uff61-\uff9f]{2,}", chars)))
    return (usual + 1.5 * frequent + 0.7 * kana - 20 * broken) / len(chars)
