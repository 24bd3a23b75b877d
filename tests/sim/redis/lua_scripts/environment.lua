-- what there is
local r={} for k,v in pairs(_G) do r[#r+1]=tostring(k)..':'..type(v) end table.sort(r) return r
local r={} for _,n in ipairs({'string','table','math','coroutine','redis','cjson','cmsgpack','struct','bit'}) do for k,v in pairs(_G[n]) do r[#r+1]=n..'.'..k..':'..type(v)..(type(v)=='number' and v or type(v)=='string' and v or '') end end table.sort(r) return r
return {tostring(cjson.null),type(cjson.null),tostring(getmetatable(cjson.null)),_VERSION,tostring(math.pi),tostring(math.huge)}
return {tostring(getmetatable(_G)~=nil),tostring(getmetatable('').__index==string),tostring(getmetatable(redis)),tostring(getmetatable(string)),tostring(_G._G==_G),tostring(rawget(_G,'string')==string)}
local r={} for k,v in pairs(getmetatable(_G)) do r[#r+1]=k..type(v) end return r
return getmetatable(_G).__index()
return getmetatable(_G).__index(1,2)
return getmetatable(_G).__index(1,{})
return {next({}) == nil, next({5})}
return {type(next), type(pairs), select('#',next(redis))}
return print
return dofile
return loadfile
return require
return module
return package
return io
return os
return debug
return python
return newproxy
return setfenv
return getfenv
return foo
return _G.foo
return _G[{}]
return _G[true]
return _G[1]
return rawget(_G,'foo')
return tostring(rawget(_G,{}))
local t = {} for k in pairs(redis) do t[#t+1]=k end return #t
-- read-only
x=1
function f() end
KEYS=1
string.format=1
string.x=1
redis.call=1
_G.x=1
_G.redis=nil
cjson.encode=nil
rawset(_G,'x',1)
rawset(string,'x',1)
rawset(string)
rawset(string,'x')
rawset()
rawset(1,2,3)
table.insert(string,1)
table.insert(string,1,2)
table.insert(string)
table.insert(string,1,2,3)
table.insert(nil,1)
table.insert({},1,2,3)
table.insert()
table.insert({})
local t={1} table.insert(t,2) table.insert(t,1,0) table.insert(t,nil) return t
local t={1} table.insert(t,'x',0)
table.sort(string) return 1
return table.remove(redis)
return #redis
return #_G
return table.concat(redis)
return {unpack(redis)}
setmetatable(_G,nil)
setmetatable(redis,{})
setmetatable(redis)
setmetatable(redis,5)
setmetatable(1,{})
setmetatable({})
getmetatable()
getmetatable(_G).__index=nil
getmetatable('').__index=nil
getmetatable('').x=1
setmetatable('',{})
setmetatable(getmetatable(_G),{})
setmetatable(getmetatable(''),{})
return tostring(getmetatable(getmetatable('')))
for k in pairs(string) do string[k]=nil end
local n=0 table.foreach(math,function(k,v) n=n+1 end) return n
return table.foreach({5,6},function(k,v) if k==2 then return v end end)
table.foreach(nil,print)
table.foreach()
table.foreach({1},5)
return table.foreachi({5,6},function(k,v) if k==2 then return v end end)
return table.getn({1,2,3})
return table.maxn({1,2,[10]=1})
table.setn({},1)
local t=setmetatable({},{__metatable='locked'}) return getmetatable(t)
local t=setmetatable({},{__metatable='locked'}) setmetatable(t,{})
KEYS[1]='x' return KEYS[1]
KEYS.foo='x' return KEYS.foo
setmetatable(KEYS,{__index=function() return 'd' end}) return KEYS[7]
return {#KEYS,#ARGV,KEYS[1],ARGV[1],ARGV[2]}
local a = redis local b = string return {a.LOG_WARNING,b.len('abc'),('x'):rep(3)}
return ('%s=%d'):format('a',5)
string.gsub('hello','l',function(c) _G.x=1 end)
return rawequal(string,getmetatable('').__index) and 1 or 0
return rawget(redis,'LOG_DEBUG')
return tostring(rawget(redis,'nosuch'))
return redis.nosuch
return tostring(rawget())
return tostring(rawget({}))
rawget(1,2)
next(1)
next()
next({},5)
pairs()
pairs(nil)
ipairs()
ipairs(nil)
local n=0 for k,v in next,redis do n=n+1 end return n
local n=0 for k,v in pairs(_G) do n=n+1 end return n
for k,v in pairs(5) do end
for k,v in 5 do end
return select('#',pairs({}))
return type(select(1,pairs({})))
-- loading
return loadstring('return 5')()
return loadstring('return ...')(7)
local a,b=loadstring('x x') return b
local a,b=loadstring('x x','@name') return b
local a,b=loadstring('x x','=name') return b
local a,b=loadstring('\n\nx x','some text\nmore') return b
loadstring()
loadstring({})
loadstring('return 1',{})
return loadstring(5)
local a,b=loadstring('5') return b
return tostring(loadstring(string.dump(function() return 1 end)))
local a,b=loadstring(string.dump(function() return 1 end)) return b
local a,b=loadstring(string.dump(function() return 1 end),'=x') return b
loadstring('return foo','=abc')()
loadstring('error("x")','@abc')()
loadstring('x=1')()
return loadstring('return redis.call("echo","hi")')()
return loadstring('return redis.call("nosuch")')()
return loadstring('\nreturn redis.call("nosuch")','@lib')()
local n=0 return load(function() n=n+1 if n<3 then return 'return 5 ' end end)
local p={'return ','1','+2'} local i=0 return load(function() i=i+1 return p[i] end)()
local p={'return ',1,'+2',''} local i=0 return load(function() i=i+1 return p[i] end)()
local a,b=load(function() error({}) end) return type(b)
local a,b=load('x') return b
load()
local a,b=load(function() return nil end) return type(a)
local d=0 local a,b=load(function() d=d+1 if d==1 then return 'x x' end end) return b
local d=0 local a,b=load(function() d=d+1 if d==1 then return 'x x' end end,'=nm') return b
string.dump(redis.call)
string.dump(string.len)
string.dump()
string.dump(5)
string.dump(pcall)
return #string.dump(function() return 1 end)
-- limits of the stack
local t={} for i=1,7998 do t[i]=i end return select('#',unpack(t))
local t={} for i=1,7999 do t[i]=i end return select('#',unpack(t))
local t={} for i=1,8000 do t[i]=i end return select('#',unpack(t))
local t={} for i=1,7999 do t[i]=i end return #{unpack(t)}
local t={'del'} for i=2,7996 do t[i]=i end return redis.call(unpack(t))
local t={'del'} for i=2,7999 do t[i]=i end return redis.call(unpack(t))
local t={'del'} for i=2,8000 do t[i]=i end return redis.call(unpack(t))
return {unpack({1,2,3},2)}
return {unpack({1,2,3},2,3)}
return {unpack({},1,3)}
unpack({},1,1e8)
unpack({},-1e9,1e9)
unpack()
local t={} for i=1,7900 do t[i]=65 end return #string.char(unpack(t))
local s=string.rep('a',7990) return select('#',string.byte(s,1,-1))
local s=string.rep('a',8010) return select('#',string.byte(s,1,-1))
local function f() return 1+f() end return f()
local function f() return f() end local function g(n) if n==0 then return 5 end return g(n-1) end return g(300000)
local g; g = function(n) if n==0 then return 5 end return g(n-1) end return g(300000)
local t={} function t.g(n) if n==0 then return 5 end return t.g(n-1) end return t.g(30000)
local s='return ' for i=1,300 do s=s..'(' end local a,b=loadstring(s..'1') return b
local s='local a' for i=1,250 do s=s..',a'..i end local a,b=loadstring(s) return b
local t={} for i=1,300 do t[i]='a'..i end local a,b=loadstring('local function f('..table.concat(t,',')..') end') return b
local t={} for i=1,110 do t[i]='a'..i end local f=loadstring('local function f('..table.concat(t,',')..',...) return select("#",...),a110 end return f') return {f()(unpack(t))}
local function f(a,b,c,d,e,...) return select('#',...) end return f()
-- coroutines
local co=coroutine.wrap(function(a) local b=coroutine.yield(a+1) return b*2 end) return {co(1),co(10)}
local co=coroutine.create(function() error('x') end) return {tostring(coroutine.resume(co)),select(2,coroutine.resume(co))}
local co=coroutine.create(function() error('x') end) local a,b=coroutine.resume(co) return {tostring(a),b,coroutine.status(co)}
local co=coroutine.wrap(function() error('x') end) co()
local co=coroutine.wrap(function() error({err='x'}) end) co()
local co=coroutine.wrap(function() error({err='x'}) end) return co()
local co=coroutine.wrap(function() local x=nil+1 end) return co()
local co=coroutine.create(function() redis.call('nosuch') end) local a,b=coroutine.resume(co) return b
local co=coroutine.create(function() return redis.call('echo','hi') end) local a,b=coroutine.resume(co) return b
local co=coroutine.wrap(function() redis.call('nosuch') end) co()
local co=coroutine.wrap(function() return redis.pcall('nosuch') end) return co()
local co=coroutine.wrap(function() for i=1,3 do coroutine.yield(i) end end) local r={} for i in co do r[#r+1]=i end return r
local co=coroutine.wrap(function() return 1 end) co() return co()
local co=coroutine.create(function() return 1 end) coroutine.resume(co) return select(2,coroutine.resume(co))
coroutine.yield(1)
return {tostring(coroutine.running()),coroutine.status(coroutine.create(function() end))}
local co co=coroutine.create(function() return coroutine.status(co),tostring(coroutine.running()==co) end) return {coroutine.resume(co)}
coroutine.create()
coroutine.create(5)
coroutine.create(string.len)
coroutine.create(redis.call)
coroutine.wrap()
coroutine.wrap(redis.call)
coroutine.resume()
coroutine.resume(5)
coroutine.status()
local co=coroutine.create(function() pcall(coroutine.yield,1) end) local a,b=coroutine.resume(co) return {tostring(a),b}
local co=coroutine.create(function() local ok,e=pcall(coroutine.yield,1) return e end) local a,b=coroutine.resume(co) return {tostring(a),b}
local co=coroutine.create(function() table.sort({2,1},function(a,b) coroutine.yield() end) end) local a,b=coroutine.resume(co) return {tostring(a),b}
local co=coroutine.create(function() for i in ipairs({1}) do string.rep() end end) local a,b=coroutine.resume(co) return b
local co=coroutine.create(function() table.insert() end) local a,b=coroutine.resume(co) return b
local co=coroutine.create(function() pairs() end) local a,b=coroutine.resume(co) return b
local co=coroutine.wrap(function() pairs() end) co()
local function gen(n) return coroutine.wrap(function() for i=1,n do coroutine.yield(i) end end) end local s=0 for i in gen(100) do s=s+i end return s
-- the garbage collector
return {tostring(collectgarbage('stop')),tostring(collectgarbage('restart')),tostring(collectgarbage('setpause',100)),tostring(collectgarbage('setpause',200)),tostring(collectgarbage('setstepmul',200)),tostring(collectgarbage()),tostring(collectgarbage('collect'))}
return {type(collectgarbage('count')),type(gcinfo()),type(collectgarbage('step'))}
collectgarbage('nosuch')
collectgarbage({})
-- random numbers
math.randomseed(0) return {tostring(math.random()),math.random(100),math.random(5,10),math.random(-5,5)}
math.randomseed(42) local r={} for i=1,20 do r[i]=math.random(1,2147483647) end return r
math.randomseed(1) return tostring(math.random(-2^31,0))
math.randomseed(2^33+5) return math.random(1000000)
math.randomseed(-1) return math.random(1000000)
math.randomseed(1.9) return math.random(1000000)
math.randomseed('7') return math.random('10')
math.randomseed()
math.randomseed({})
math.randomseed('x')
math.random(0)
math.random(10,5)
math.random(1,2,3)
math.random(2^31)
math.random(1,2^31)
math.random(nil)
math.random({})
math.random(1,nil)
return math.random(0)
local f=math.random return f(0)
pcall(math.random,0) return select(2,pcall(math.random,0))
math.randomseed(5) return {math.random(2.7),math.random(1,1)}
