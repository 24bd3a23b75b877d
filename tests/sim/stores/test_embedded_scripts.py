"""Scripts that are strings of programs: what they are at run time, and where their lines stand.

The expected texts were printed by the languages themselves (JDK 17, Node 18, PHP 8.2, Ruby 3.1); Python's are held
against Python here.
"""

from __future__ import annotations

import ast
import textwrap
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderlab.model.errors import InputError
from orderlab.sim.stores.binding import load_binding
from orderlab.sim.stores.sources import SUFFIXES
from orderlab.sim.stores.sources.constants import Constants, Hole
from orderlab.sim.stores.sources.languages import LANGUAGES
from orderlab.sim.stores.sources.scripts import parsed, script_named, scripts_of, sent


def embedded(constants: Constants, name: str) -> tuple[bytes, list[tuple[int, int]]]:
    return sent(script_named(constants, name))


JAVA = r'''
class Locks {
  private static final String KEY = "lock";
  static final String TAKE = "local a = 1\n" +
      "return redis.call('GET', '" + KEY + "')--\u00e9\101";
  static final RedisScript<Long> FREE = new DefaultRedisScript<>("return redis.call('DEL', KEYS[1])", Long.class);
  static final String PAGE = """
      if a \
      then
        return redis.call("GET", KEYS[1])   
      end
      """;
  RFuture<Long> tryLock(long t) {
    return eval(getName(), "if (redis.call('exists', KEYS[1]) == 0) then " +
        "return nil; end;", Collections.singletonList("name"), t);
  }
  String two(boolean a) { return a ? run("redis.call('A')") : run("redis.call('B')"); }
  String form(String name) { return String.format("redis.call('%s', %d)", name, 3); }
}
'''  # noqa: W291
TYPESCRIPT = r"""
export const push = `
  local a = ${limit}
  return redis.call('RPUSH', '\`')`;
const limit = 7;
const scripts = { claim: "redis.call(" + '1)', m() { return `redis.call('m')` } } as const;
class Queue { static readonly SCRIPT: string = ['a', 'b'].join('\n'); run() { return r.eval(`redis.call('x')`, 1) } }
redis.defineCommand('take', { numberOfKeys: 1, lua: `return redis.call('t')` });
function raw() { return String.raw`redis.call('a\n')`; }
const arrow = () => `redis.call('arrow')\x41\u{1F600}`;
exports.dated = "redis.call('d')";
"""
GO = r"""
package x
const Take = `local x
return redis.call('x\n')`
const (
  Free = "redis.call(1)\n" + "b\x41\u00e9\101"
)
var script = redis.NewScript(`return redis.call('s')`)
func (q *Queue) Move() { q.rdb.Eval(ctx, `redis.call('m')`, []string{"a"}) }
"""
PHP = r"""<?php
class LuaScripts {
  const A = 'redis.call(\'it\')\n' . "x\n\x41\u{e9}";
  public static function push() {
        return <<<'LUA'
    redis.call('rpush', KEYS[1])
      x\n
    LUA;
  }
  public $later = <<<LUA
    redis.call("later")\t{$this->key}
    LUA;
}
$plain = "redis.call('p')";
"""
RUBY = r"""
module Scripts
  LIMIT = 5
  TAKE = <<~LUA.freeze
    local limit = #{LIMIT}
      return redis.call('x')
  LUA
  RAW = RedisScript.new(<<-'LUA', keys: 1)
  redis.call('raw\n')
  LUA
  def self.free
    <<~LUA
      redis.call('free')
    LUA
  end
  def run; redis.eval(%q(redis.call('q')), []); end
  BOTH = 'a\n' "b\n" + "c"
end
"""
SHARP = '''
class A {
  const string Sum = "redis.call(1)\\n" + @"b ""q""" + """
     raw
       x
     """;
  string Get => "redis.call('get')";
  static readonly LuaScript L = LuaScript.Prepare(@"redis.call('l')");
  string Made() { return "redis.call('made')"; }
}
'''
KOTLIN = '''
object A {
  const val LIMIT = 5
  const val SUM = "redis.call(1)\\n" + "b$LIMIT ${LIMIT}"
  val TAKE = """
    redis.call('x')
      deeper
  """.trimIndent()
  fun free() = "redis.call('free')"
  fun margin(): String { return """
   |redis.call('a')
   | b""".trimMargin() }
}
'''
PYTHON = r'''
LIMIT = 5
TAKE = """
local x = 1
return redis.call('get')
"""
class Queue:
    FREE = f"redis.call('x', {LIMIT})" r"\n" "\x41"
    def register(self):
        return self.client.register_script("return redis.call('r')")
DEDENTED = textwrap.dedent("""\
   redis.call('a')
     b
""").strip() + '%s %d' % (LIMIT, 3) + "{}".format(LIMIT) + "\n".join(["a", "b"])
'''
EXPECTED = [
    (".java", JAVA, "TAKE", "local a = 1\nreturn redis.call('GET', 'lock')--éA", [4, 5]),
    (".java", JAVA, "Locks.FREE", "return redis.call('DEL', KEYS[1])", [6]),
    (".java", JAVA, "PAGE", 'if a then\n  return redis.call("GET", KEYS[1])\nend\n', [8, 10, 11, 11]),
    (".java", JAVA, "tryLock", "if (redis.call('exists', KEYS[1]) == 0) then return nil; end;", [14]),
    (".java", JAVA, "two[2]", "redis.call('B')", [17]),
    (".ts", TYPESCRIPT, "push", "\n  local a = 7\n  return redis.call('RPUSH', '`')", [2, 3, 4]),
    (".ts", TYPESCRIPT, "scripts.claim", "redis.call(1)", [6]),
    (".ts", TYPESCRIPT, "m", "redis.call('m')", [6]),
    (".ts", TYPESCRIPT, "SCRIPT", "a\nb", [7, 7]),
    (".ts", TYPESCRIPT, "Queue.run", "redis.call('x')", [7]),
    (".ts", TYPESCRIPT, "take", "return redis.call('t')", [8]),
    (".ts", TYPESCRIPT, "raw", "redis.call('a\\n')", [9]),
    (".ts", TYPESCRIPT, "arrow", "redis.call('arrow')A\U0001f600", [10]),
    (".js", TYPESCRIPT.replace("as const", "").replace("readonly ", "").replace(": string", ""), "dated",
     "redis.call('d')", [11]),
    (".go", GO, "Take", "local x\nreturn redis.call('x\\n')", [3, 4]),
    (".go", GO, "Free", "redis.call(1)\nbAéA", [6, 6]),
    (".go", GO, "script", "return redis.call('s')", [8]),
    (".go", GO, "Move", "redis.call('m')", [9]),
    (".php", PHP, "A", "redis.call('it')\\nx\nAé", [3, 3]),
    (".php", PHP, "LuaScripts::push", "redis.call('rpush', KEYS[1])\n  x\\n", [6, 7]),
    (".php", PHP, "plain", "redis.call('p')", [14]),
    (".rb", RUBY, "TAKE", "local limit = 5\n  return redis.call('x')\n", [5, 6, 6]),
    (".rb", RUBY, "RAW", "  redis.call('raw\\n')\n", [9, 9]),
    (".rb", RUBY, "free", "redis.call('free')\n", [13, 13]),
    (".rb", RUBY, "run", "redis.call('q')", [16]),
    (".rb", RUBY, "BOTH", "a\\nb\nc", [17, 17]),
    (".cs", SHARP, "Sum", 'redis.call(1)\nb "q"raw\n  x', [3, 3, 5]),
    (".cs", SHARP, "Get", "redis.call('get')", [7]),
    (".cs", SHARP, "L", "redis.call('l')", [8]),
    (".cs", SHARP, "Made", "redis.call('made')", [9]),
    (".kt", KOTLIN, "SUM", "redis.call(1)\nb5 5", [4, 4]),
    (".kt", KOTLIN, "TAKE", "redis.call('x')\n  deeper", [6, 7]),
    (".kt", KOTLIN, "free", "redis.call('free')", [9]),
    (".kt", KOTLIN, "margin", "redis.call('a')\n b", [11, 12]),
    (".py", PYTHON, "TAKE", "\nlocal x = 1\nreturn redis.call('get')\n", [3, 4, 5, 5]),
    (".py", PYTHON, "Queue.FREE", "redis.call('x', 5)\\nA", [8]),
    (".py", PYTHON, "register", "return redis.call('r')", [10]),
    (".py", PYTHON, "DEDENTED", "redis.call('a')\n  b5 35a\nb", [12, 13, 14]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("suffix", "source", "name", "text", "lines"), EXPECTED, ids=[f"{a}#{c}" for a, _, c, *_ in EXPECTED]
)
def test_a_string_is_what_its_language_makes_of_it(
    suffix: str, source: str, name: str, text: str, lines: list[int]
) -> None:
    found, runs = embedded(parsed(f"a{suffix}", source.encode(), {}), name)
    assert found == text.encode()
    assert [first + n for first, count in runs for n in range(count)] == lines


def test_what_is_trimmed_is_what_the_language_trims() -> None:
    go = parsed("a.go", b'package x\nvar s = strings.Trim("..redis.call(1).", ".")', {})
    php = parsed("a.php", b"<?php $s = trim('  redis.call(1)x', ' x');", {})
    assert {embedded(go, "s")[0], embedded(php, "s")[0]} == {b"redis.call(1)"}


def test_every_language_has_a_case() -> None:
    assert set(SUFFIXES) == set(LANGUAGES)
    tried = {LANGUAGES[suffix].name for suffix, *_ in EXPECTED}
    assert tried == {language.name for language in LANGUAGES.values()}


PIECES = st.sampled_from(["a", "é", "7", " ", "\\n", "\\x41", "\\\\", "\\q", "\\0", "\\101", "\\u00e9", "\\\n", "\\N"])


@given(st.sampled_from(['"', "'", '"""', "'''"]), st.sampled_from(["", "r", "u", "R"]), st.lists(PIECES, max_size=6))
def test_strings_of_python_are_those_of_python(quote: str, prefix: str, pieces: list[str]) -> None:
    literal = f"{prefix}{quote}{''.join(pieces)}{quote}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes that are none
            expected = ast.literal_eval(literal)
    except SyntaxError:
        return
    source = f"S = {literal} + 'redis.call'"
    assert embedded(parsed("a.py", source.encode(), {}), "S")[0] == f"{expected}redis.call".encode()


@given(st.lists(st.text(st.sampled_from("a \t\n"), max_size=6), max_size=6))
def test_dedent_is_that_of_python(rows: list[str]) -> None:
    text = "\n".join(rows)
    source = f'S = textwrap.dedent("""{text}""") + "redis.call"'
    assert embedded(parsed("a.py", source.encode(), {}), "S")[0] == f"{textwrap.dedent(text)}redis.call".encode()


@pytest.mark.parametrize(
    ("suffix", "source", "name", "hole"),
    [
        (".java", JAVA, "form", "name"),
        (".php", PHP, "later", "$this->key"),
        (".py", "S = f'redis.call({x!r})'", "S", "x!r"),
        (".py", "S = 'redis.call(' + str(limit()) + ')'", "S", "limit()"),
        (".ts", "const s = `redis.call(${o.limit})`", "s", "o.limit"),
        (".rb", 'S = "redis.call(#{x})"', "S", "x"),
        (".py", "S = 'redis.call(%s, %05d)' % (1, 2)", "S", "%05d"),
        (".py", "S = 'redis.call(%(key)s)' % {'key': 1}", "S", "%(key)s"),
        (".py", "S = 'redis.call({0:x})'.format(1)", "S", "0:x"),
        (".java", 'class A { String s = "redis.call(" + (a\n  .b()) + ")"; }', "s", "a .b()"),
        (".go", "package x\nvar s = fmt.Sprintf(`redis.call(%d)`, n)", "s", "n"),
    ],
)
def test_a_hole_is_named_and_can_be_filled(suffix: str, source: str, name: str, hole: str) -> None:
    path = f"a{suffix}"
    with pytest.raises(Hole, match=f"{path}:[0-9]+: the script has a hole, ") as raised:
        embedded(parsed(path, source.encode(), {}), name)
    assert raised.value.name == hole
    assert b"FILLED" in embedded(parsed(path, source.encode(), {hole: "FILLED"}), name)[0]


@pytest.mark.parametrize(
    ("suffix", "source", "name", "message"),
    [
        (".java", JAVA, "TAKEN", 'nothing there is called "TAKEN"; did you mean "TAKE"?'),
        (".java", JAVA, "two", r'"two" leads to 2 scripts \(lines 17, 17\); say which: "two\[1\]"'),
        (".java", JAVA, "two[3]", '"two" has 2 scripts; number them from 1'),
        (".ts", TYPESCRIPT, "limit", 'no string in "limit" looks like a script'),
        (".java", 'class A { String S = "redis.call(\\uu0041)"; }', "S", r"a\.java:1: cannot be parsed as Java"),
        (
            ".ts",
            "const s = `redis.call(1)`.replace(/1/, n)",
            "s",
            "a.ts:1: the program changes this string by",
        ),
        (".java", 'class A { String s = "redis.call(1)".repeat(2); }', "s", "changes this string by repeat"),
        (
            ".js",
            "const s = 'redis.call(1)'\nc.eval(s.replace('1', n))",
            "s",
            "a.js:2: the program changes s by replace",
        ),
        (".php", "<?php $s = 'redis.call(1)'; $r->eval(str_replace('1', $n, $s));", "s", "changes s by str_replace"),
        (".rs", "", "S", r'a\.rs: "#" names a string of a program'),
    ],
)
def test_a_name_that_leads_nowhere_is_one_line(suffix: str, source: str, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        embedded(parsed(f"a{suffix}", source.encode(), {}), name)


def test_blanks_may_be_taken_out_of_a_script() -> None:
    source = r"const s = 'redis.call(1)'; c.eval(s.replace(/\s+/g, ' '))"
    assert embedded(parsed("a.js", source.encode(), {}), "s")[0] == b"redis.call(1)"


def test_scripts_of_a_file_are_listed_by_the_names_that_find_them() -> None:
    for suffix, source in (
        (".java", JAVA),
        (".ts", TYPESCRIPT),
        (".go", GO),
        (".php", PHP),
        (".rb", RUBY),
        (".kt", KOTLIN),
    ):
        program = parsed(f"a{suffix}", source.encode(), {})
        listed = scripts_of(program)
        assert listed
        for script in listed:
            if script.text is not None:
                assert embedded(program, script.name)[0].decode() == script.text.characters


def test_a_name_of_the_file_goes_before_the_same_within() -> None:
    source = """
        const take = `return redis.call('GET', KEYS[1])`
        function Locks(options) { this.take = options.take ? options.take(`redis.call('DEL')`) : take }
    """
    assert embedded(parsed("a.js", source.encode(), {}), "take")[0] == b"return redis.call('GET', KEYS[1])"


def test_a_name_that_is_given_twice_leads_to_both() -> None:
    source = """
def incr(known):
    if known:
        lua = "return redis.call('A')"
    else:
        lua = "return redis.call('B')"
    return run(lua)
"""
    program = parsed("a.py", source.encode(), {})
    assert [embedded(program, one.name)[0] for one in scripts_of(program)] == [
        b"return redis.call('A')", b"return redis.call('B')"
    ]  # fmt: skip


STORE = """
specification = "lock"
promises = {{ tokens = "caller" }}
{more}
[keys]
lease = "lease"
[operations.acquire]
script = {acquire}
keys = ["lease"]
args = ["<token>", "<ttl_ms>"]
[operations.release]
script = "Locks.java#FREE"
keys = ["lease"]
args = ["<token>"]
"""


def written(folder: Path, acquire: str, more: str = "") -> Path:
    (folder / "Locks.java").write_text(JAVA)
    (folder / "head.lua").write_text("local one = 1\n")
    (folder / "store.toml").write_text(STORE.format(acquire=acquire, more=more))
    return folder


def test_a_store_runs_strings_of_a_program_and_tells_its_lines(tmp_path: Path) -> None:
    binding = load_binding(written(tmp_path, '"Locks.java#TAKE"'))
    script = binding.scripts[0]
    assert script.name == "Locks.java#TAKE"
    assert script.place_of(2) == ("Locks.java#TAKE", tmp_path / "Locks.java", 5)
    assert script.files == {"Locks.java#TAKE": b"\n\n\nlocal a = 1\nreturn redis.call('GET', 'lock')--\xc3\xa9A\n"}


def test_files_make_a_script_one_after_the_other(tmp_path: Path) -> None:
    script = load_binding(written(tmp_path, '["head.lua", "Locks.java#TAKE"]')).scripts[0]
    assert script.source == "local one = 1\nlocal a = 1\nreturn redis.call('GET', 'lock')--éA\n".encode()
    assert [script.place_of(line)[1:] for line in (1, 2, 3)] == [
        (tmp_path / "head.lua", 1), (tmp_path / "Locks.java", 4), (tmp_path / "Locks.java", 5)
    ]  # fmt: skip


def test_holes_of_a_store_are_filled_and_none_is_left_over(tmp_path: Path) -> None:
    more = 'holes = { name = "GET" }'
    assert load_binding(written(tmp_path, '"Locks.java#form"', more)).scripts[0].source == b"redis.call('GET', 3)"
    with pytest.raises(InputError, match="holes: no script has the hole 'name'; write it"):
        load_binding(written(tmp_path, '"Locks.java#TAKE"', more))


def test_a_script_that_does_not_compile_is_told_by_the_line_of_its_program(tmp_path: Path) -> None:
    folder = written(tmp_path, '"Locks.java#PAGE"')
    (folder / "Locks.java").write_text(JAVA.replace("then\n        return", "then\n        retturn"))
    with pytest.raises(InputError, match=r"Locks\.java:10"):
        load_binding(folder)


def test_another_version_of_a_program_stands_in_for_it(tmp_path: Path) -> None:
    folder = written(tmp_path, '"head.lua"')
    (tmp_path / "Old.java").write_text(JAVA.replace("'DEL'", "'UNLINK'"))
    old = load_binding(folder, instead={"Locks.java": tmp_path / "Old.java"})
    assert old.scripts[1].source == b"return redis.call('UNLINK', KEYS[1])"
