"""Random command lines for `lab/campaigns/commands.py`: every kind of quoting, expansion, redirect
and compound command.
"""

import random

from tests.tables import split_words

SAFE = split_words("cat ls grep head wc sort echo printf true git test sed [")
UNSAFE = ["rm", "touch", "tool", "make", "tee", "python3"]
SPELLINGS = [
    "{0}{1}", "{0}''{1}", '"{0}{1}"', "\\{0}{1}", "{0}\\{1}", "{0}\\\n{1}", "$'{0}{1}'", "{0}$@{1}",
    "{0}${{V-}}{1}",
    '{0}"{1}"', "{0}${{V:+}}{1}", "/stubs/{0}{1}", "{0}$V{1}", "{{{0}{1},a}}", "{0}`true`{1}",
    "$V{0}{1}", "{0}{1}*",
    "{0}`tru\\e`{1}", "`echo {0}{1}`", "{0}$'\\x{2:x}'", "{0}${{V%x}}{1}", "{0}\"$V\"{1}",
    "{0}${{U:-{1}}}", "{0}$((1))", "\\\n{0}{1}",
    "{0}$(true){1}", "~/{0}{1}", "./{0}{1}", "$\"{0}{1}\"", "{0}{{{1},}}", "{0}[{1}]",
]  # fmt: skip
OPTIONS = [
    "-n", "-r", "-i", "--color", "-e", "-la", "-o", "--output=o", "--", "-", "-c", "-exec", "-1",
    "-nr", "-o out", "--out o",
    "-w", "-f a.txt", "--pre=rm", "-O", "-s", "-z", "-zn", "--", "-x", "--ext-diff",
]  # fmt: skip
ATOMS = [
    "a.txt", "b.txt", "sub/c.txt", "sub", ".", "..", "/etc/x", "'a b'", '"a b"', "*.txt", "?.txt",
    "[ab].txt", "*", ".*",
    "~", "~/x", "~x", "$V", '"$V"', "${V}", "${V:-d}", "${V:=rm}", "${V/a/b}", "${V%t}", "${#V}",
    "${!V}", "$W", "$1", "$@",
    '"$@"', "$#", "$?", "$$", "$HOME", "$PWD", "$IFS", "$RANDOM", "${V[0]}", "$((1+2))", "$((V))",
    "$[1+2]", "$'a\\tb'",
    "$'\\x72m'", "$'\\u0041'", '$"x"', "\\a", "\\$V", "'$V'", "a\\ b", "''", '""', "{a,b}",
    "{a,b}.txt", "{1..3}",
    "a{b,c{d,e}}", "{a}", "{,x}", "-{n,r}", "@(a|b).txt", "!(a).txt", "a=b", "V=rm", "#x", "a#b",
    "!", "a!b", "=", "%",
    "s/a/b/", "p", "1p", "'s/a/b/e'", "'w out'", "a'b'c", 'a"b"c', 'x"$(true)"y', "if", "then", "}",
    "{", "é", "--", "a,b",
    "<", "2", "status", "log", "-c core.pager=rm", "diff", "$-", "$_", "${V@P}", "${V@Q}", "${V^^}",
    "${V:0:1}", "\\\n",
    "a\\\nb", "$", "a$", '"$"', '"a\\\nb"', '"\\a"', "'\\'", "`true`", "\\`", '"\\`"', "[a", "a]",
    "\\*", '"*"', "1>x",
    "a=~", "V=~/x", '"x"~', "a:~", "~+", "~-", "$\"a`true`b\"", '$"$(rm x)"', "`echo \\`rm x\\``",
    '`echo "rm x"`', '"`echo \\"rm\\"`"',
    "`echo \\\\a`", "`rm '\\''x`", "$(rm x)", "$(<a.txt)", "`<a.txt`", "$((V=1))", "$(( $(rm x) ))",
    "$((a[0]))", "${V[@]}", "${#V[@]}",
    "${!V@}", "${V:$(rm x)}", "${V:-`rm x`}", "${V//[a-z]/$(rm x)}", "${V:-\"a b\"}", "${V:-'}'}",
    '"${V:-\'$(rm x)\'}"', "${V-$W}",
    "?(a).txt", "+(a).txt", "*(a|b).txt", "[[:alpha:]].txt", "[!a].txt", "**", "**/c.txt",
    "{a..c..1}", "{a,$V}", "{$(true),b}", "{a,'b c'}",
    "<(cat a.txt)", ">(tee o)", "<(rm x)", "$'\\e[2K'", "$'a\\'b'", "$'\\u00e9'", "$'\\cA'",
    "$'\\0'", "日本", "a\\ ", "V", "1+V", "V[0]", "a[$(rm\tx)]",
    "'a[$(rm x)]'", "'a[$(rm x)]'", "\"a[\\$(rm x)]\"", "'V[$(rm x)]=1'", "'-v'", "-v", "${V: W}",
    "${V:0:W}", "-eq", "-v 'a[$(rm x)]'",
    "--", "-o", "{", "}", "do", "done", "esac", "fi", "[[", "]]", "time", "function", "coproc",
    "${V^}", "${V@A}", "$!", "$0", "${@:1}", "${*}",
]  # fmt: skip
MILD = [
    "a.txt",
    "b.txt",
    "sub",
    "*.txt",
    "'a b'",
    '"$V"',
    "sub/c.txt",
    "x",
    "'s/a/b/'",
    "-n",
    "1",
    ".",
    "status",
    "log",
    '"x y"',
    "{a,b}.txt",
]
REDIRECTS = [
    ">o", "> o", ">>o", "2>&1", "2>/dev/null", ">/dev/null", "&>o", "&>>o", ">|o", "<a.txt",
    "< a.txt", "<>o", ">&o", ">&2",
    "1>&2", "<&0", ">&-", "{fd}>o", "2>o", "12>o", ">$V", ">'o'", "<<<x", '<<<"$V"', ">o{a,b}",
    ">*", "&>/dev/null", ">(cat)",
    ">/dev/tcp/x/1", "3<a.txt", ">\\\no", "2>& 1", ">&$V", "<${V}", "2>&o",
    "&>>'o o'", ">&$(echo o)", "3>&1", "3>&1-", "2>&1 >o", ">& o", "5<>o", "<&3", "1<>o", ">| o",
    "{fd}<a.txt", "{V}>&1", "<<<$(rm x)",
    "<<<`rm x`", "< <(rm x)", "> >(tee o)", "2> >(cat)", ">$'o'", ">$\"o\"", ">\"o$V\"", ">~/o",
    ">~", ">/dev/stdout", ">/dev/fd/1", "</dev/udp/x/1",
    "0<a.txt", "1>/dev/null 2>&1", ">/dev/null/../o", ">./o", ">sub/o", ">>sub/c.txt",
    "<<E\nx\nE\n",
]  # fmt: skip
ASSIGNMENTS = [
    "V=rm", "V=x", "V='rm x'", "V=", "V+=m", "V=$(echo rm)", "V=a.txt", "V=(rm x)", "V[0]=rm",
    "export V=rm", "declare V=rm",
    "W=$V", "readonly V=x", "PATH=.", "IFS=,", "local V=rm", "printf -v V rm", "read V <<<rm",
    "V=${W:-rm}", "unset V",
    "V=*", "V=-n", "declare -n V=W", "mapfile V <<<rm", "set -- rm", "set -f", "shopt -s extglob",
    "alias cat=rm", "let V=1",
    "export PATH=.", "V='a b' W=x", "BASH_ENV=x", "getopts a V", "typeset -i V=1", "V=\"a b\"",
    "enable -n echo", "hash -r",
    "hash -p /stubs/rm cat", "BASH_CMDS[cat]=/stubs/rm", "V=(a b)", "V+=(rm)", "declare -A V",
    "declare -a V=(rm)", "V=$'r'm", "V=~", "V={a,b}",
    "V=`echo rm`", "read -r V W <a.txt", "read V <a.txt", "readarray -t V <a.txt",
    "printf -v 'V[0]' rm", "printf -v PATH .", "IFS=x V=rxm",
    "shopt -s expand_aliases", "alias ls='rm x'\nshopt -s expand_aliases", "set -o posix", "set +B",
    "export -n V", "export IFS=m", "set -- a b",
    "shopt -s nullglob dotglob", "shopt -s lastpipe", "V=$W$V", "local -n V=W", "V=rm W=x",
    "exec 3>o", "exec <a.txt", "PS4='$(rm x)'", "ENV=a.txt",
    "GLOBIGNORE=a", "LC_ALL=C", "TZ=x", "v=rm", "HOME=/w", "set -k", "unset PATH", "umask 0",
    "ulimit -n 9", "cd sub", "cd ..", "cd /", "cd -",
]  # fmt: skip
WRAPPERS = [
    "env ", "env -i ", "env V=rm ", "timeout 5 ", "timeout -s KILL 5 ", "nice ", "nice -n 1 ",
    "nohup ", "time ", "time -p ",
    "command ", "builtin ", "exec ", "eval ", "xargs ", "xargs -n 1 ", "xargs -I{} ", "xargs -I X ",
    "! ", "setsid ",
    "stdbuf -o0 ", "command -p ", "command -v ", "exec -a x ", "env -u V ", "env -S ", "timeout ",
    "xargs -0 ", "nice -1 ",
    "env - ", "xargs -a a.txt ", "exec -c ", "coproc ", "\\time ",
]  # fmt: skip
SEPARATORS = [
    ";", " ; ", "&&", " && ", "||", " || ", "|", " | ", " |& ", "&", " & ", "\n", "; \n", " &&\n",
    " |\n", "\n\n", " # c\n",
    "\\\n;", ";\\\n", ";\t", "& ", " 2>&1 | ",
]  # fmt: skip
NOISE = [
    *"'\"\\$`(){}[]<>|&;#*?!~= \t\n-,", "$(", "${", "<<", "((", "[[", "$'", "]]", "))", "\\\n",
    "&&", "in ", "do ", '$"', "\\`",
    "<(", "\r", "\u00a0", "\u3000", "\u2028", "\x01", "\x0b", "\x0c", "\x1b[2K", "\x7f", "\x80",
    "\u200b", "\ufeff", "\u0131",
    ">&", "<>", ">|", "&>", ";&", ";;&", "\\\r\n", "=~", "=(", "+=", "@(", "!(",
]  # fmt: skip


class Generator:
    """Random lines; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.is_mild = False
        """True for a line of mostly reading programs and plain words, which is more often
        allowed.
        """

    def line(self) -> str:
        self.is_mild = self.random.random() < 0.5
        text = self.script(self.random.choice((1, 2, 2, 3)))
        for _ in range(self.random.choice((0, 0, 0, 0, 1) if self.is_mild else (0, 0, 0, 1, 2))):
            text = self.mutated(text)
        if self.random.random() < 0.005:  # a long one
            text = (
                f"echo {'x' * self.random.choice((1_000, 5_000))} {text}"
                + "; true" * self.random.choice((1, 300))
            )
        return text.replace("\0", "")[: 400 if self.random.random() < 0.9 else 20_000]

    def mutated(self, text: str) -> str:
        at = self.random.randrange(len(text) + 1)
        end = min(len(text), at + self.random.choice((0, 1, 1, 2, 5)))
        return (
            text[:at]
            + self.random.choice((self.random.choice(NOISE), "", text[at:end] * 2))
            + text[end:]
        )

    def script(self, depth: int) -> str:
        count = self.random.choice((1, 1, 1, 2, 2, 3))
        pieces = [self.statement(depth) for _ in range(count)]
        text = pieces[0]
        for piece in pieces[1:]:
            text += self.random.choice(SEPARATORS) + piece
        return text + self.random.choice(("",) * 12 + ("\n", ";", " # end", "&", " "))

    def statement(self, depth: int) -> str:
        if depth > 0 and self.random.random() < 0.3:
            return self.compound(depth - 1)
        if self.random.random() < 0.15:
            return self.random.choice(ASSIGNMENTS)
        return self.simple(depth)

    def compound(self, depth: int) -> str:
        a, b, c = self.script(depth), self.script(depth), self.simple(depth)
        word, redirect = self.word(depth), self.random.choice(REDIRECTS)
        quoted = "'" + c.replace("'", "'\\''") + "'"
        forms = [
            f"if {a}; then {b}; fi", f"if {c}; then {a}; else {b}; fi",
            f"while {a}; do {b}; break; done",
            f"until {c}; do {b}; break; done", f"for V in {word} {self.word(depth)}; do {a}; done",
            "for V in rm; do $V x; done",
            f"for ((i=0;i<1;i++)); do {a}; done",
            f"case {word} in {self.word(depth)}) {a};; *) {b};; esac", f"{{ {a}; }}",
            f"( {a} )", f"({a})", f"[[ {word} == {self.word(depth)} ]] && {a}", f"((V++)); {a}",
            f"f() {{ {a}; }}; f",
            f"function f {{ {a}; }}; f", f"bash -c {quoted}", f"sh -c {quoted} x y",
            f"bash -ec {quoted}", f"eval {quoted}",
            f"find . -name a.txt -exec {c} \\;", f"find sub -exec {c} {{}} +",
            f"cat <<E\n{word} $(rm x)\nE\n{a}",
            f"cat <<'E'\n$(rm x)\nE\n{a}", f"cat <<-E | {c}\n\t{word}\n\tE\n{b}",
            f"{{ {a}; }} {redirect}", f"( {a} ) {redirect}",
            f"trap {quoted} EXIT", f"echo $({a})", f'echo "$({a})"', f"echo `{c}`", f"cat <({a})",
            f"V=$({a}); $V {word}",
            f"V={word}; {c} $V", f"cd {word} && {a}", f"cd sub; {c}",
            f"select V in {word}; do {a}; break; done", f"time {{ {a}; }}",
            f"bash -c {quoted} x rm", f"bash <<< {quoted}", f"echo {quoted} | bash",
            f"{a} | while read V; do {c}; done",
            f"[ {word} = x ] || {a}", f"coproc {{ {a}; }}", f"cat <<E > o\n{word}\nE",
            f"cat <<\\E\n$(rm x)\nE\n{c}", f"! {a}",
            f"if [[ $V =~ {word} ]]; then {a}; fi", f"echo ${{V:-$({a})}}", f"echo ${{V:-`{c}`}}",
            f"cat << E E2\nx\nE\n{c}",
            f"case {word} in a|{self.word(depth)}) {a};& x) {b};;& *) {c};; esac",
            f"case x in (x) {a};; esac", f"f() ( {a} ); f x | {c}",
            f"function f() {{ {a}; }}\nf {word}", f"f() if true; then {a}; fi; f",
            f"cat() {{ {a}; }}; cat {word}", "cat () rm x\ncat a.txt",
            f"shopt -s expand_aliases\nalias cat={quoted}\ncat {word}",
            f"shopt -s extglob; echo !({word}); {a}", f"trap {quoted} DEBUG; {a}",
            f"trap {quoted} ERR; false; {a}", f"trap {quoted} RETURN; f() {{ true; }}; f",
            f". <(echo {quoted})", f"source a.txt; {a}", ". ./b.txt",
            f"source /dev/stdin <<< {quoted}", f"eval \"{word}\" {quoted}", f"eval `echo {quoted}`",
            f"V=({word} $({c})); echo ${{V[@]}}; {a}",
            f"declare -A V=([a]={word}); echo ${{V[a]}}; {a}", f"coproc N {{ {a}; }}; {c}",
            f"{a} | tee >({c})", f"diff <({a}) <({c})",
            f"read V < <({a}); $V {word}", f"printf -v V %s {word}; {c} $V",
            f"IFS=, read -r V W <<< {word}; echo $V; {a}",
            f"while read -r V; do {c} \"$V\"; done < a.txt",
            f"let V={word}; {a}", f"echo $(( V = {word} )) $V; {a}",
            f"for ((V=0; V<2; V++)) do {c}; done", f"for V; do {a}; done",
            f"for V in *.txt\ndo {c} $V\ndone",
            f"cat <<E\n`rm x`\nE\n{a}", f"cat <<E\n\\$(rm x) \\`rm x\\`\nE\n{a}",
            f"cat <<\"E F\"\n$(rm x)\nE F\n{a}", f"cat <<E | {c}; {a}\n{word}\nE",
            f"cat <<E && {c}\n${{V:-$(rm x)}}\nE", f"cat <<A <<'B'\n$({c})\nA\n$(rm x)\nB",
            f"cat <<-'E'\n\t`rm x`\n\tE\n{c}", f"$(cat <<E\n{word}\nE\n)",
            f"{c} {redirect} {word} {redirect} {self.word(depth)}", f"{a} | {c} {redirect} {word}",
            f"{redirect} {c}", f"{redirect} {redirect} {c} {word}",
            f"bash {redirect} -c {quoted}", f"sh -s {word} <<< {quoted}", f"bash a.txt {word}",
            f"env -S {quoted}", f"env {quoted}", f"find . -exec sh -c {quoted} \\;",
            f"echo {word} | xargs {c}", f"echo {word} | xargs -I@ {c} @",
            f"echo {quoted} | xargs -0 bash -c", f"timeout 1 bash -c {quoted}", f"exec {c}; rm x",
            f"( cd {word}; {a} ); {c}", f"[ {word} ] && {a}", f"test {word} -eq {word} && {c}",
            f"[[ {word} -eq {word} ]] || {a}", f"[[ a < {word} ]]; {a}",
            f"! {{ {a}; }} | {c}", f"time -p {c} | {a}", f"{{ {a}\n}} & {c}\nwait",
            f"if\n{a}\nthen\n{b}\nfi", f"echo \"$({a})\" '$({c})' \"`{c}`\"",
            f"echo \\\n {word}; {a}", f"{c} # {word} `rm x`\n{a}", f"$'{c}'", f'$"{c}"',
            f"`{c}` {word}", f"$({c}) {word}", f"set -- {word}; $1 x; {a}",
            f"mapfile -t V < <({a}); ${{V[0]}}", f"type {word}; {a}", f"builtin eval {quoted}",
            f"command eval {quoted}", f"\\eval {quoted}", f"e''val {quoted}",
            f"[ -v {word} ] && {a}", f"test '-v' {word}; {a}", f"printf -v {word} {c}",
            f"read -r {word} < a.txt; {a}", f"V='a[$(rm x)]'; [[ V -eq {word} ]]",
            "V='a[$(rm x)]'; echo ${W:V} ${W:0:V} $((V)) ${W[V]}",
            "V='-v a[$(rm x)]'; [ $V ] && test $V", f"declare -i V={word}; {a}",
            f"V=; V[{word}]=1; {a}",
            "declare -i V; V='a[$(rm x)]'", f"export {word}; {a}", f"declare {word}; {a}",
            f"local {word}", f"readonly {word}", f"unset {word}; {a}",
            "V=-va[\\`rm\\`]; printf \"$V\" x",
            f"[[ {word} -gt 1 ]] && {a}", f"[ {word} -v {word} ]",
            f"V=({word}); echo ${{V[$(rm x)]}}", f"echo ${{V[{word}]}}", f"wait -p {word}; {a}",
            f"[[ -v {word} ]]; {a}", f"(( {word} )); {a}", f"echo $(( {word} ))",
            f"V=({word} {word}); ${{V[0]}} {word}",
        ]  # fmt: skip
        return self.random.choice(forms)

    def simple(self, depth: int) -> str:
        words = [self.program()]
        if self.random.random() < 0.25:
            words[0] = self.random.choice(WRAPPERS) + words[0]
        if self.random.random() < 0.1:
            words.insert(0, self.random.choice(ASSIGNMENTS))
        for _ in range(self.random.choice((0, 1, 1, 2, 2, 3))):
            words.append(
                self.random.choice(OPTIONS) if self.random.random() < 0.2 else self.word(depth)
            )
        for _ in range(self.random.choice((0, 0, 0, 1))):
            words.insert(self.random.randrange(len(words) + 1), self.random.choice(REDIRECTS))
        return self.random.choice((" ",) * 9 + ("  ", "\t", " \\\n")).join(words)

    def program(self) -> str:
        name = self.random.choice(
            SAFE if self.random.random() < (0.93 if self.is_mild else 0.6) else UNSAFE
        )
        if self.random.random() < (0.97 if self.is_mild else 0.85):
            return name
        return self.random.choice(SPELLINGS).format(name[:1], name[1:], ord(name[1:2] or "x"))

    def word(self, depth: int) -> str:
        if depth > 0 and self.random.random() < 0.1:
            inner = self.script(depth - 1)
            return self.random.choice(
                (f"$({inner})", f'"$({inner})"', f"`{inner}`", f"<({inner})", f"x$({inner})")
            )
        atom = self.random.choice(MILD if self.is_mild and self.random.random() < 0.7 else ATOMS)
        return atom + self.random.choice(ATOMS) if self.random.random() < 0.12 else atom
