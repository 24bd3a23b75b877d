"""Calls of scripts in programs: what is passed as keys and as arguments, in each client's way."""

from __future__ import annotations

import pytest

from orderlab.sim.stores.sources.calls import calls_of
from orderlab.sim.stores.sources.scripts import parsed, scripts_of

LUA = "return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])"
IN_GO = f"package p\nconst src = `{LUA}`\nvar take = redis.NewScript(src)\nfunc f() {{ "
IN_JAVA = f'class A {{ static final String TAKE = "{LUA}"; void f() {{ '
IN_NODE = f"const TAKE = `{LUA}`;\n"
IN_PHP = f'<?php class A {{ const TAKE = "{LUA}"; function f() {{ '
IN_PYTHON = f'TAKE = "{LUA}"\n'
IN_RUBY = f'TAKE = "{LUA}"\n'
CALLS = [
    ("a.go", IN_GO + 'take.Run(ctx, rdb, []string{"q:" + id}, token, ttl) }'),
    ("a.go", IN_GO + 'rdb.Eval(ctx, src, []string{"q:" + id}, token, ttl) }'),
    ("A.java", IN_JAVA + 'j.eval(TAKE, Collections.singletonList("q:" + id), Arrays.asList(token, ttl)); } }'),
    ("A.java", IN_JAVA + 'j.eval(TAKE, 1, "q:" + id, token, ttl); } }'),
    ("A.java", IN_JAVA + 'redisTemplate.execute(TAKE, List.of("q:" + id), token, ttl); } }'),
    (
        "A.java",
        IN_JAVA + 's.eval(Mode.READ_WRITE, TAKE, ReturnType.VALUE, List.of("q:" + id), token, ttl); } }',
    ),
    ("A.java", IN_JAVA + 'c.eval(TAKE, ScriptOutputType.INTEGER, new String[]{"q:" + id}, token, ttl); } }'),
    ("a.js", IN_NODE + "redis.eval(TAKE, 1, `q:${id}`, token, ttl)"),
    ("a.js", IN_NODE + "client.eval(TAKE, { keys: [`q:${id}`], arguments: [token, ttl] })"),
    ("a.js", IN_NODE + "const keys = [`q:${id}`]; redis.eval(TAKE, keys.length, ...keys, token, ttl)"),
    ("a.js", IN_NODE + "const rest = [token, ttl]; redis.eval(TAKE, 1, `q:${id}`, ...rest)"),
    (
        "a.js",
        IN_NODE + "redis.defineCommand('grab', { numberOfKeys: 1, lua: TAKE }); redis.grab(`q:${id}`, token, ttl)",
    ),
    ("a.js", f"redis.defineCommand('grab', {{ numberOfKeys: 1, lua: `{LUA}` }}); redis.grab(`q:${{id}}`, token, ttl)"),
    (
        "a.js",
        IN_NODE + "r.defineCommand('grab', { numberOfKeys: 1, lua: load('TAKE') }); r.grab(`q:${id}`, token, ttl)",
    ),
    ("a.php", IN_PHP + '$r->eval(self::TAKE, 1, "q:" . $id, $token, $ttl); } }'),
    ("a.php", IN_PHP + '$r->eval(self::TAKE, ["q:" . $id, $token, $ttl], 1); } }'),
    ("a.py", IN_PYTHON + "take = c.register_script(TAKE)\ntake(keys=[f'q:{id}'], args=[token, ttl])"),
    ("a.py", IN_PYTHON + "c.eval(TAKE, 1, 'q:' + id, token, ttl)"),
    ("a.py", IN_PYTHON + "c.eval(TAKE, 1, *['q:' + id], token, ttl)"),
    ("a.py", IN_PYTHON + "s.key, s.token = f'q:{id}', token\nc.eval(TAKE, 1, s.key, s.token, ttl)"),
    ("a.rb", IN_RUBY + 'redis.eval(TAKE, ["q:#{id}"], [token, ttl])'),
    ("a.rb", IN_RUBY + 'redis.eval(TAKE, keys: ["q:#{id}"], argv: [token, ttl])'),
]


@pytest.mark.parametrize(("file", "program"), CALLS)
def test_a_call_is_read(file: str, program: str) -> None:
    constants = parsed(file, program.encode(), {})
    (site,) = calls_of(constants, [each.name for each in scripts_of(constants)])
    assert [each.text.replace("$", "") for each in site.keys] == ["q:{id}"]
    assert [each.name for each in site.arguments] == ["token", "ttl"]


def test_the_name_of_a_command_stands_for_no_script() -> None:
    calls = '@r.call("EVAL", TAKE, 1, "a:#{id}")\n@r.call("EVAL", GIVE, 1, "b:#{id}")\n'
    sites = calls_of(parsed("a.rb", (IN_RUBY + f'GIVE = "{LUA}"\n{calls}').encode(), {}), ["TAKE", "GIVE"])
    assert [(site.script, site.keys[0].text) for site in sites] == [("TAKE", "a:{id}"), ("GIVE", "b:{id}")]


def test_the_form_of_a_text_is_not_the_text() -> None:
    program = f'class A {{ const string TAKE = @"{LUA}"; void F() {{ db.ScriptEvaluate(TAKE, '
    program += 'new RedisKey[] { "q" }, new RedisValue[] { Guid.NewGuid().ToString("N") }); } }'
    (site,) = calls_of(parsed("A.cs", program.encode(), {}), ["A.TAKE"])
    assert [(each.text, each.is_constant) for each in site.arguments] == [("{Guid.NewGuid()}", False)]


@pytest.mark.parametrize("arguments", ["1, ...everything", "keys.length, ...keys", "TAKE"])
def test_what_only_a_run_knows_is_no_call_site(arguments: str) -> None:
    constants = parsed("a.js", (IN_NODE + f"redis.eval(TAKE, {arguments})").encode(), {})
    assert calls_of(constants, ["TAKE"]) == []


def test_a_name_that_is_given_twice_leads_to_the_script_before_it() -> None:
    text = """
FIRST = "return redis.call('GET', KEYS[1])"
SECOND = "return redis.call('DEL', KEYS[1])"
def first(c):
    script = c.register_script(FIRST)
    return script(keys=["a"])
def second(c):
    script = c.register_script(SECOND)
    return script(keys=["b"])
"""
    sites = calls_of(parsed("a.py", text.encode(), {}), ["FIRST", "SECOND"])
    assert [(site.script, site.keys[0].text) for site in sites] == [("FIRST", "a"), ("SECOND", "b")]
