-- errors that end a script
error('boom')
error('boom',0)
error('boom',1)
error('boom',2)
local function f() error('boom',2) end f()
local function f() error('boom',2) end local function g() f() end g()
local function f() error('boom',2) end return f()
local function f() error('boom',3) end local function g() f() end g()
error({err='boom'})
error({err='BAD boom'})
error({err='-x\r\ny'})
error({err='x\n'})
error('a\nb')
error(5)
error(true)
error(nil_value or 'n')
error({err=5})
error({err='x',source='mine',line=7})
error({err='x',line='7'})
error('MISCONF boom',0)
error(redis.error_reply('MY err'))
error(redis.error_reply('x'))
assert(false)
assert(false,'msg')
assert(nil,{err='tbl'})
return assert(false,'tail')
assert(1)
assert()
local a = nil; a.b=1
local a = nil; return a.b
return 1+{}
return #nil
return {}..'x'
return 1<'x'
return {}<{}
return nil>1
foo()
local t={} t.x.y=1
local t={} t.x()
local t={} t:x()
local t={} t[nil]=1
local t={} t[0/0]=1
('x').y.z=1
for i=1,'x' do end
for i='a',2 do end
for i=1,2,{} do end
return ('x')()
return -{}
local x = 5 x()
string.rep()
return string.rep()
('x'):rep({})
return ('x'):rep({})
local s='x' return s:rep()
string.format('%d','x')
return string.format('%d','x')
return string.format('%q')
return string.format('%y',1)
return string.format('%s')
string.char(256)
tonumber()
tonumber('10',99)
return tonumber({},10)
tostring()
type()
select(0)
select('x')
select(-5,1)
math.floor('x')
math.floor()
return math.max()
table.concat({{}})
table.concat({1,2,3},',',1,5)
table.concat()
table.concat({},5,6,7,8)
table.sort({3,1,'x'})
table.sort({1,2,3},function(a,b) error('in sort') end)
table.sort({1,2,3,4,5,6,7,8,9,10},function(a,b) return true end)
string.gsub('x','x',function() error('in gsub') end)
string.gsub('x','x',function() local a=nil+1 end)
string.gsub('x','x',function() redis.call('nosuch') end)
string.gsub('x','x',redis.call)
string.gsub('x','(','')
string.gsub('x','%','')
string.gsub('x','[','')
string.gsub('x','x','%9')
string.gsub('x','x','%2')
string.gsub('x','x',true)
string.gsub('x','x')
string.find('a','[')
string.find('a','%f')
string.find('a','(()')
string.find('a',')')
string.find('a','%1')
string.find()
string.find('a')
('x'):find()
('x'):find({})
('x').find({})
local f=string.find f()
local f=string.find return f()
local s=string s.find()
return ('x'):match({})
('x'):gmatch()
('x'):gmatch({})
string.gmatch()
for a in string.gmatch('x') do end
return string.find('a','a',1,true)
return {string.find('hello world','o w')}
return {string.find('hello','l+')}
return {string.gsub('hello','l',{l='L'})}
-- the same in functions and at other lines
local function f()
local function f() error('deep') end f()
local t = setmetatable({},{__index=function(t,k) error('no '..k) end}) return t.x
local t = setmetatable({},{__index=function(t,k) return redis.call('nosuch') end}) return t.x
local t = setmetatable({},{__call=function() error('called') end}) t()
local t = setmetatable({},{__tostring=function() return 'TS' end}) return tostring(t)
local t = setmetatable({},{__tostring=function() return 5 end}) return tostring(t)
local t = setmetatable({},{__add=function(a,b) return 7 end}) return t+1
local t = setmetatable({},{__eq=function(a,b) return true end}) return t==setmetatable({},getmetatable(t))
local t = setmetatable({},{__concat=function(a,b) return 'cat' end}) return t..'x'
local t = setmetatable({},{__len=function() return 9 end}) return #t
local t = setmetatable({},{__lt=function(a,b) error('lt') end}) return t<t
-- redis.call
return redis.call()
return redis.pcall()
return redis.call({})
return redis.pcall({})
return redis.call(nil)
return redis.call(true)
return redis.call('set','a',nil)
return redis.call('set','a',true)
return redis.call('set','a',{})
return redis.call('set','a',print_missing)
return redis.call('set','a',function() end)
return redis.call('set','a')
return redis.call('nosuch')
return redis.call('get')
redis.call('set','s','x') redis.call('incr','s')
redis.call('set','s','x') return redis.call('incr','s')
redis.call('set','s','x') return redis.pcall('incr','s')
redis.call('set','s','x') return redis.call('lpush','s','y')
local call=redis.call return call('nosuch')
local call=redis.call call('nosuch')
local call=redis.call local function f() return call('nosuch') end return f()
local call=redis.call local function f() return call('nosuch') end local x=f() return x
local function f(c,...) return c(...) end return f(redis.call,'nosuch')
local function f(c,...) return (c(...)) end return f(redis.call,'nosuch')
local t={redis.call} return t[1]('nosuch')
return (redis.call('nosuch'))
return redis['call']('nosuch')
local n='call' return redis[n]('nosuch')
return select(1,redis.call('nosuch'))
return {redis.call('nosuch')}
return redis.call('echo',redis.call('nosuch'))
return redis.call('eval','return 1',0)
return redis.call('evalsha','x',0)
return redis.call('fcall','x',0)
return redis.call('script','load','x')
return redis.call('script','exists','x')
return redis.call('multi')
return redis.call('exec')
return redis.call('watch','x')
return redis.call('config','get','x')
return redis.call('client','id')
return redis.call('hello')
return redis.call('blpop','x',0)
return redis.call('info2')
return redis.call('config','nosuch')
return redis.call('object','nosuch','a')
return redis.call('object')
return redis.call('function','list')
return redis.call('EcHo','hi')
return redis.call('echo','a','b')
return redis.call('ECHO')
return redis.call(' echo','a')
return redis.call('','a')
return redis.call('select','0')
return redis.call('echo',1.5)
return redis.call('echo',1e17)
return redis.call('echo',1e16)
return redis.call('echo',123456789012345678)
return redis.call('echo',-123456789012345678)
return redis.call('echo',0.1)
return redis.call('echo',-0)
return redis.call('echo',0)
return redis.call('echo',0/0)
return redis.call('echo',-(0/0))
return redis.call('echo',1/0)
return redis.call('echo',-1/0)
return redis.call('echo',1e15)
return redis.call('echo',1e300)
return redis.call('echo',2^53)
return redis.call('echo',2^63)
return redis.call('echo',-2^63)
return redis.call('echo',3)
return redis.call('echo',-3)
redis.call('rpush','nums',0,-0,1,1.5,1e17,0/0,2,3,4,5,-0,6,7,8) return redis.call('lrange','nums',0,-1)
redis.call('del','nums2') redis.call('rpush','nums2',1,2,3,4,5,6,7,8,0,-0) return redis.call('lrange','nums2',0,-1)
local t={'rpush','many'} for i=1,200 do t[#t+1]=i-100 end redis.call(unpack(t)) return redis.call('lrange','many',0,-1)
local t={'rpush','many2'} for i=1,200 do t[#t+1]=i*0.5 end t[100]=true return redis.call(unpack(t))
local t={'rpush','many2'} for i=1,200 do t[#t+1]=i*0.5 end t[100]=-0 return redis.call(unpack(t))
return redis.call(5)
return redis.call(5.5)
return redis.call(0)
return #redis.call('echo',string.rep('x',100000))
return redis.call('echo','a\0b\255')
-- error tables
local e=redis.pcall('get') local r={} for k,v in pairs(e) do r[#r+1]=k..'='..tostring(v) end return r
local e=redis.pcall('foo') local r={} for k,v in pairs(e) do r[#r+1]=k..'='..tostring(v) end return r
local e=redis.pcall() local r={} for k,v in pairs(e) do r[#r+1]=k..'='..tostring(v) end return r
local e=redis.pcall('get',{}) local r={} for k,v in pairs(e) do r[#r+1]=k..'='..tostring(v) end return r
local ok,e=pcall(redis.call,'get') return {tostring(ok),type(e),tostring(e)}
local ok,e=pcall(redis.call,'incr','s') return {tostring(ok),type(e),tostring(e)}
local ok,e=pcall(redis.call) return {tostring(ok),type(e),tostring(e)}
local ok,e=pcall(error,{err=5}) return {tostring(ok),type(e),tostring(e)}
local ok,e=pcall(error,{err='a',x=1}) return {tostring(ok),type(e),tostring(e)}
local ok,e=pcall(error,{err={}}) return {tostring(ok),type(e)}
local ok,e=pcall(error,{}) return {tostring(ok),type(e)}
local ok,e=pcall(error) return {tostring(ok),type(e)}
local ok,e=pcall(error,'x',0) return {tostring(ok),e}
local ok,e=pcall(error,'x') return {tostring(ok),e}
local ok,e=pcall(function() error('x') end) return {tostring(ok),e}
local ok,e=pcall(function() error('x',2) end) return {tostring(ok),e}
local ok,e=pcall(function(...) return select('#',...) end,nil,nil) return {tostring(ok),e}
return {pcall(function(...) return ... end,1,2,3)}
return {pcall(5)}
return {tostring(pcall(nil))}
local ok,e=pcall(nil) return e
local ok,e=pcall('x',1) return e
local ok,e=pcall(string.rep) return e
local ok,e=pcall(string.rep,'x',{}) return e
local ok,e=pcall(table.insert) return e
local ok,e=pcall(pairs) return e
local ok,e=pcall(function() pairs() end) return e
local ok,e=pcall(function() return pairs() end) return e
local ok,e=pcall(function() local x=nil+1 end) return e
local ok,e=pcall(function() return foo end) return e
local ok,e=pcall(function() x=1 end) return e
local ok,e=pcall(function() rawset(_G,'x',1) end) return e
local ok,e=pcall(function() redis.call('nosuch') end) return e
local ok,e=pcall(function() return redis.call('nosuch') end) return e
local ok,e=pcall(pcall) return tostring(e)
local ok,e=pcall(pcall,error,'x') return {tostring(ok),tostring(e)}
local ok,e=pcall(error,setmetatable({},{__index={err='meta'}})) return {tostring(ok),e}
local ok,e=pcall(error,setmetatable({},{__index=function() error('again') end})) return {tostring(ok),type(e)}
local ok,e=xpcall(function() redis.call('incr','s') end,function(e) local r='' for k,v in pairs(e) do r=r..k..'='..tostring(v)..';' end return r end) return {tostring(ok),type(e),tostring(e)}
local ok,e=xpcall(function() error('x') end,function(e) return 'H:'..e end) return e
local ok,e=xpcall(function() pairs() end,function(e) return 'H:'..e end) return e
local ok,e=xpcall(function() table.insert(nil,1) end,function(e) return 'H:'..e end) return e
return {xpcall(function(...) return select('#',...),7 end,function() end,1,2)}
xpcall()
xpcall(function() end)
return tostring(select(2,xpcall(error,nil)))
return tostring(select(2,xpcall(function() error('x') end,5)))
return tostring(select(2,xpcall(function() error('x') end,function(e) error('y') end)))
return {xpcall(5,function(e) return e end)}
return __redis__err__handler('x')
local e=__redis__err__handler('x') local r={} for k,v in pairs(e) do r[#r+1]=k..'='..tostring(v) end return r
local function f() return (__redis__err__handler({err='q'})) end local e=f() return e.err..e.source..e.line
-- replies of the script's own
return {err='x'}
return {err='MY x'}
return {err='-x'}
return {err='x\r\ny\n'}
return {err=''}
return {err='a\0b'}
return {ok='x'}
return {ok='a\r\nb\n'}
return {ok=''}
return {ok='a\0b'}
return {ok=5}
return {err=5}
return {err={}}
return {ok='x',err='y'}
return {ok='x',1,2}
return redis.error_reply('x')
return redis.error_reply('-x')
return redis.error_reply('X Y')
return redis.error_reply('-X Y')
return redis.error_reply('')
return redis.error_reply('-')
return redis.error_reply('--x y')
return redis.error_reply(' a')
return redis.error_reply('a  b')
return redis.error_reply('a\r\nb')
return redis.error_reply('-a\nb c\n')
return redis.error_reply('a\0b c')
return redis.error_reply('a\r\nb').err
return redis.error_reply('a b\n\r\n').err
return redis.error_reply()
return redis.error_reply(1)
return redis.error_reply('a','b')
return redis.error_reply({})
return redis.status_reply('x')
return redis.status_reply('x\r\ny')
return redis.status_reply()
return redis.status_reply({})
return redis.status_reply(5)
return redis.sha1hex('')
return redis.sha1hex()
return redis.sha1hex('a','b')
return redis.sha1hex(1.5)
return redis.sha1hex({})
return redis.sha1hex(nil)
return redis.sha1hex('a\0b')
return redis.log()
return redis.log(1)
return redis.log('x','y')
return redis.log('1','y')
return redis.log(9,'y')
return redis.log(-1,'y')
return redis.log(-0.5,'y')
return redis.log(3.5,'y')
return redis.log(redis.LOG_NOTICE,'y',5,{})
return redis.setresp()
return redis.setresp(4)
return redis.setresp(2,3)
return redis.setresp('3')
return redis.setresp(2.5)
return redis.setresp(3.9)
return redis.setresp({})
return redis.set_repl()
return redis.set_repl(9)
return redis.set_repl(-1)
return redis.set_repl(1,2)
return redis.set_repl('x')
return redis.set_repl(3.5)
return redis.set_repl(0)
return redis.set_repl(redis.REPL_ALL)
return tostring(redis.replicate_commands())
return tostring(redis.breakpoint())
return select('#',redis.debug('x'))
return tostring(redis.debug('x'))
return tostring(redis.acl_check_cmd('get','x'))
return tostring(redis.acl_check_cmd('get'))
return tostring(redis.acl_check_cmd())
return tostring(redis.acl_check_cmd('nosuch'))
return tostring(redis.acl_check_cmd({}))
return tostring(redis.acl_check_cmd('object','encoding','x'))
return tostring(redis.acl_check_cmd('object','nosuch','x'))
return redis.register_function
-- syntax
syntax error here
return 'a
for
return 1 +
x = = 1
local
return "\999"
return [[x
--[[ unfinished
goto x
return 0x
return 1..2
break
return ...
return select('#',...)
local function f() end end
if x then
return 'ok' -- comment
return 1;;
return

#!
#!lua
