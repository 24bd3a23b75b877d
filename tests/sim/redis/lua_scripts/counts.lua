-- counts and indices at their edges; a server kills itself or does not end on some, which test_hostile_work.py has
return {unpack({}, 0, 2^31 - 1)}
return #{unpack({}, 1, 7000)}
return #{unpack({}, 1, 8500)}
return select('#', unpack({}, -2^31, 2^31-1))
return select('#', unpack({}, -2^31, -1))
return select('#', unpack({}, 2^31-10, 2^31-1))
return select('#', unpack({}, 1e300))
local t={} table.insert(t, -1000, 'y') return #t
local t={} return table.concat({}, 'x', 1, 2^31-1)
local t={1} return table.concat(t, 'x', -2^31, 2^31-1)
return table.concat(setmetatable({}, {__index=function() return 'x' end}), '', 1, 100)
local t={1,2,3} return tostring(table.remove(t, -5))
local t={1,2,3} return tostring(table.remove(t, 2^31))
return table.maxn({[2^53]=1})
return string.rep('x', -1)
return #string.rep('x', 2^32+2)
return #string.rep('', 2^31-1)
return {string.byte(string.rep('x', 10000), 1, 10000)}
return #{string.byte(string.rep('x', 7900), 1, 7900)}
return #{string.byte(string.rep('x', 1e7), 1, -1)}
return {string.byte('abc', -2^31, 2^31)}
return string.char(unpack({1,2,3}, -1, 2))
return select(-2^31, 1, 2)
return select(2^31, 1, 2)
return select(-1, 1, 2)
return select(0, 1, 2)
return string.format('%99d', 1)
return string.format('%100d', 1)
return string.format('%.99f', 1e300)
return string.format('%.100f', 1e300)
return #string.format('%99.99f', -1.7976931348623157e308)
return string.format('%5000s', 'x')
return string.sub('abc', -2^31, 2^31-1)
return string.sub('abc', -2^63, 2^63)
return table.setn({}, 5)
return table.getn({1,2}, 5)
return string.find('abc', 'b', -2^31)
return string.find('abc', '', 2^31-1)
return {string.find('abc', '', 10)}
return string.gsub('abc', '', 'x', 2^31)
return {string.gsub('abc', '', 'x', -1)}
return {string.gsub('abc', '', 'x', 2^32+1)}
return struct.pack('i2147483647', 1)
return struct.pack('>c2147483647', 'x')
return struct.pack('x2147483647')
return #struct.pack(string.rep('x', 100000))
return struct.size('c2147483647c2147483647')
return struct.unpack('', 'abc', -2)
return {struct.unpack('', 'abc', -2)}
return {struct.unpack('', 'abc', 10)}
return {struct.unpack('b', 'abc', -2)}
return {struct.unpack('b', 'abc', 2^40)}
return struct.unpack('c0', 'abc')
return {struct.unpack(string.rep('b', 10000), string.rep('x', 10000))}
return {struct.unpack('!2147483647 i', 'abcdabcd')}
return cjson.encode({[1000]=1})
local t={} t[1]=t return #cmsgpack.pack(t)
return #cmsgpack.pack({[2^31]=1})
return #cmsgpack.pack({[1]=1,[1e300]=2})
return cmsgpack.unpack_limit('\1\2\3', 2^31, 0)
return {cmsgpack.unpack_limit('\1\2\3', 2^40, 0)}
return {cmsgpack.unpack_limit('\1\2\3', -1, 0)}
return {cmsgpack.unpack_limit('\1\2\3', 1, -1)}
return {cmsgpack.unpack_limit('\1\2\3', 1, 2^31)}
return {cmsgpack.unpack(string.rep('\1', 10000))}
return #{cmsgpack.unpack(string.rep('\1', 100000))}
return cmsgpack.unpack('\221\255\255\255\255')
return cmsgpack.unpack('\223\255\255\255\255')
return #cmsgpack.pack(unpack({},1,7900))
return bit.tohex(1, -2^31)
return bit.tohex(1, 2^31)
return bit.band(unpack({1,2,3},1,7900))
return {bit.lshift(1, 2^31), bit.rol(1, -1), bit.tobit(2^80)}
return {math.ldexp(1, 2^31), math.frexp(1e300)}
return tonumber('7', 2^32+10)
return tonumber('7', 1e300)
return tonumber(string.rep('1', 100000), 36)
error('a', -2^31)
error('a', 2^31-1)
error('a', 100)
return tostring(pcall(getfenv, 2^31-1))
return redis.sha1hex(string.rep('x', 1000))
return redis.call('echo', unpack({}, 1, 7990))
return math.fmod(5, 0)
return {string.format('%c%q', 2^31, 'a')}
return string.format('%d', 1e300)
return string.format('%x', -1)
return coroutine.wrap(function(...) return select('#', ...) end)(unpack({},1,7990))
local f = coroutine.wrap(function() coroutine.yield(unpack({},1,7990)) end) return select('#', f())
return math.max(unpack({1,2},1,2))
return select('#', string.match(string.rep('x',40), string.rep('()', 33)))
return #cmsgpack.pack(unpack({},1,4000))
return #cmsgpack.pack(unpack({},1,4001))
return {struct.unpack('', 'abc', -2^62)}
return {struct.unpack('', 'abc', 2^62)}
return {struct.unpack('!8 c0', 'abcd', -2)}
return select('#', unpack({}, 2^31-1, 2^31-1))
return select('#', unpack({}, -2^31, -2^31+5))
return unpack({}, -2^31, 0)
return unpack({}, -2^31)
return unpack({}, 1, '2')
return unpack({}, 'x', 2)
return unpack({1,2,3}, nil, 2)
return {unpack({1,2,3}, 2, nil)}
return unpack()
return unpack(nil, 1, 2)
return unpack('x', -2^31, 2^31-1)
return table.maxn()
return table.maxn(5)
return table.maxn({[-1]=1})
return table.maxn({[1.5]=1,[3]=2,x=1})
return tostring(table.foreachi({1,2,3}, function(i,v) if i==2 then return v end end))
table.foreachi({1,2}, 5)
table.foreachi(5, type)
table.foreach({1,2}, 5)
table.foreach(nil, type)
return tostring(table.foreach({a=1}, function(k,v) return k..v end))
return tostring(table.foreach(math, function(k,v) if k=='pi' then return k end end))
table.foreachi({1,2}, function() error('x') end)
table.foreach({1,2}, function() local a = nil + 1 end)
local t={1,2} table.insert(t, 1, nil) return #t
local t={1,2} table.insert(t, 'x', 1)
local t={1,2} table.insert(t, 1, 2, 3)
local t={1,2,3} table.insert(t, '2', 'x') return t
local t={1,2,3} table.insert(t, 1.9, 'x') return t
local t={1,2,3} return {table.remove(t, '2'), unpack(t)}
local t={1,2,3} table.remove(t, 'x')
table.insert(5, 1, 2)
table.remove(5, 1)
table.insert(string, 1, 2)
local t={} for i=1,1500 do t[i]=(i*7919)%1503 end table.sort(t) return {t[1],t[2],t[1500]}
local t={} for i=1,1500 do t[i]='k'..(i*7919)%1503 end table.sort(t) return {t[1],t[2],t[1500]}
local t={} for i=1,1500 do t[i]=i end t[700]='x' table.sort(t)
local t={} for i=1,1500 do t[i]=i end t[700]={} table.sort(t)
local t={} for i=1,1500 do t[i]=i end table.sort(t, 5)
local t={} for i=1,1500 do t[i]=i end table.sort(t, nil) return t[1500]
local t={} for i=1,1500 do t[i]=i end table.sort(t, function(a,b) return true end)
local t={} for i=1,1500 do t[i]=i end table.sort(t, function(a,b) error('x') end)
local t={} for i=1,1500 do t[i]=(i*7919)%1503 end table.sort(t, function(a,b) return a>b end) return {t[1],t[1500]}
local t={} for i=1,1500 do t[i]=1 end table.sort(t, rawequal)
local t={} for i=1,1500 do t[i]=i end table.sort(t, math.max)
local s=string.rep('a',3000) return {s:find('a-b')}
local s=string.rep('a',3000)..'b' return {s:find('a-b')}
local s=string.rep('ab',2000) return {s:gsub('a(b)', '%1x', 3)}
local s=string.rep('ab,',2000) local n,m=0,'' for a,b in s:gmatch('(%w+),()') do n=n+1 m=a..b end return {n,m}
local s=string.rep('x',2000) return {s:match('^(x-)(x*)$')}
local s=string.rep('(x)',900) return {s:match('(%b())(.*)$')}
local s=string.rep('key=val;',500) return {s:gsub('(%w+)=(%w+);', '%2=%1')}
local s=string.rep('key=val;',500) return {(s:gsub('(%w+)=(%w+);', {key='k'}))}
local s=string.rep('key=val;',500) return {s:gsub('(%w+)=(%w+);', function(a,b) if b=='val' then return false end end)}
local s=string.rep('key=val;',500) return s:gsub('(%w+)=(%w+)', function() return {} end)
local s=string.rep('key=val;',500) return s:gsub('(%w+)=(%w+', 'x')
local s=string.rep('key=val;',500) return s:gsub('%w+)=(%w+', 'x')
local s=string.rep('key=val;',500) return s:find('%w+%')
local s=string.rep('key=val;',500) return s:find('%w+[a')
local s=string.rep('key=val;',500) return s:find('%w+%f')
local s=string.rep('key=val;',500) return s:find('%w+%b')
local s=string.rep('key=val;',500) return s:find('%w+%1')
local s=string.rep('key=val;',500) return s:gsub('%w+=%w+', '%2')
local s=string.rep('key=val;',500) return s:gsub('%w+=%w+', 'x', 'y')
local s=string.rep('key=val;',500) return s:gsub('%w+=%w+', true)
local s=string.rep('key=val;',500) return s:gsub('%w+=%w+', function() error('deep') end)
local s=string.rep('key=val;',500) return s:gsub('%w+=%w+', function() local a = nil + 1 end)
local s=string.rep('key=val;',500) return {s:find('%w+=%w+', 9)}
local s=string.rep('key=val;',500) return {s:find('l;%w+=%w+', -20)}
local s=string.rep('a',1500)..'%' return {s:gsub('a+%%', '%%')}
local s=string.rep('a ',1500) return {s:gsub('%s*a%s*', '')}
local s=string.rep('x',70000) return {s:find(string.rep('x',40)..'y',1,true)}
local s=string.rep('x',70000)..'yz' return {s:find(string.rep('x',40)..'y',1,true)}
local s=string.rep('x',70000)..'yz' return {s:find(string.rep('x',40)..'y',-10)}
local s=string.rep('x',70000) return {s:find(string.rep('x',40),69990,true)}
local s=string.rep('x',70000) return {s:find(string.rep('x',40),100000,true)}
return {double=0/0}
return {double=-(0/0)}
return {{double=0/0}}
return {big_number='12\r\n3'}
return {big_number='x\0y'}
return {big_number=''}
return {big_number='--5'}
return {{big_number='007'}}
return {verbatim_string={string='a\0b',format='txt'}}
error('a\0b')
error({err='a\0b'})
error('a\0b', 0)
local function f() error('\0') end f()
return redis.pcall('set', 'a\0b')
return {err='a\0b'}
return redis.call('command','getkeys','eval','x','1','a')
return redis.pcall('command','getkeys','eval','x','7','a')
return redis.pcall('command','getkeys','zunionstore','d','7','a')
return redis.pcall('command','getkeys','nosuch','d')
return redis.pcall('command','count','x')
-- how many values come back
return select('#', pcall(function() end))
return select('#', pcall(function() return nil, nil end))
return select('#', pcall(redis.log, 1, 'x'))
return select('#', xpcall(function() end, print))
return select('#', coroutine.resume(coroutine.create(function() end)))
return select('#', coroutine.wrap(function() end)())
return select('#', loadstring('return'))
return select('#', loadstring('x y'))
return select('#', load(function() end))
return {pcall()}
return {xpcall()}
-- casts to int: of a double what does not fit is the smallest, of a 64-bit integer its low half counts
return redis.set_repl(2^32+1)
return redis.set_repl(-2^40)
return redis.set_repl(0/0)
return redis.set_repl(1.9)
return redis.setresp(2^32+3)
return redis.setresp(3.9)
return redis.log(2^32+1, 'x')
return redis.log(1/0, 'x')
return redis.log(-0.5, 'x')
return {cmsgpack.unpack_one('\1', 0/0)}
return {cmsgpack.unpack_limit('\1\2\3', 1, 1e300)}
return cjson.encode_max_depth(2^32+5)
return cjson.encode_max_depth(2^32)
return {cjson.encode_sparse_array(true, 2^32+5)}
return cjson.encode_keep_buffer('on\0x')
return cjson.encode_keep_buffer('x\0x')
return cjson.encode_invalid_numbers('null\0')
