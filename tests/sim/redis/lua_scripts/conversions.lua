return {1,2,3.99,-3.99,'a',true,false,nil,5}
return {1,true,false,{2,{3}},'x'}
return {false,1}
return {nil,1}
return {}
return {{}}
return {{{}},{}}
return {[0]=1,2}
return {1,2,nil,3}
return {1,2,[4]=3}
return {a=1}
return {1,a=2}
return {double=3.5}
return {double=3}
return {double=1/0}
return {double=-1/0}
return {double=1e300}
return {double=0.1}
return {double='x'}
return {double='1.5'}
return {map={a=1}}
return {map={}}
return {map={1,2,3}}
return {map={[1]='x',[2]={3}}}
return {map={[true]='x'}}
return {map={[1.5]=2}}
return {map=1}
return {map={a={map={b=1}}}}
return {set={a=1}}
return {set={a=true}}
return {set={}}
return {set={'a','b'}}
return {set={a={1}}}
return {set=5}
return {big_number='123'}
return {big_number='-123456789012345678901234567890'}
return {big_number=5}
return {verbatim_string={string='x',format='txt'}}
return {verbatim_string={string='x',format='long'}}
return {{verbatim_string={string='a:b',format='mkd'}},{verbatim_string={string='x',format=''}}}
return {verbatim_string={string='x',format='a\0bc'}}
return {verbatim_string={string='x'}}
return {verbatim_string={format='txt'}}
return {verbatim_string={format='a',string=5}}
return {verbatim_string=5,7}
return {format='a',string='b'}
return {double=1,map={}}
return {map={},set={}}
return {1,{err='e'},{ok='o'},{double=1.5}}
return {map={a={err='x'}}}
return {1,{err='a\nb\n'}}
return setmetatable({ok='x'},{})
return setmetatable({},{__index={ok='x'}})
return setmetatable({},{__index={1,2,3}})
return setmetatable({},{__index=function(t,k) return 'x' end})
return setmetatable({1,2},{__index=function(t,k) error('touched') end})
return 1
return 1.5
return -1.5
return 1e20
return -1e20
return 0/0
return 1/0
return 2^53
return 2^62
return 2^63
return -2^63
return -2^63-2^12
return -0
return 'x'
return ''
return '\0\255'
return nil
return
return true
return false
return 1,2
return nil,2
return coroutine.create(function() end)
return redis.call
return function() end
return cjson.null
return {cjson.null,1}
return {redis.call,1}
return {coroutine.create(function() end)}
return redis
return {string}
return KEYS
return ARGV
return {KEYS,ARGV}
return tostring(1e15)..tostring(123456789012345678)..tostring(0.1)..tostring(-0)..tostring(1e100)
return 1e15 .. ''
return 2^53 .. ''
return 10/3 .. ''
return tostring(1/0)..tostring(-1/0)..tostring(0/0)..tostring(-(0/0))
return string.format('%d %s %5.2f %x %q %g',3.99,'a',1.234,255,'q\n"',1e20)
return string.format('%d',2^31)..string.format('%d',2^53)..string.format('%u',-1)..string.format('%i',-5)
return string.format('%c%c',72,105)..string.format('%e',12345.678)..string.format('%%')..string.format('%10s|%-10s|','a','b')
return tonumber('0x10')+tonumber('1e3')+tonumber(' 5 ')
return tostring(tonumber('abc'))..tostring(tonumber(''))..tostring(tonumber('1e'))..tostring(tonumber('0x'))
return tonumber('ff',16)+tonumber('777',8)+tonumber('zz',36)
return {tonumber('9007199254740993'),tostring(tonumber('9007199254740993'))}
return tonumber('nan')
return tostring(tonumber('inf'))
return 7%3 + -7%3 + 7%-3
return {5%1.5,2^0.5*1000,7/2}
return #'abc'..#''
return {1 and 2,nil or 'x',not nil}
return table.concat({1,2.5,'x'},',')
return string.rep('ab',3)..string.reverse('abc')..string.upper('abc')..string.lower('ABC')..string.len('abc')
return {string.byte('ABC',1,-1)}
return string.sub('hello',2,-2)..string.sub('hello',-3)
return {math.floor(1.5),math.ceil(1.5),math.abs(-2),math.max(1,5,3),math.min(4,2),math.fmod(7,3),math.sqrt(16),math.pow(2,10)}
return {math.modf(3.7)}
return tostring(math.sin(1))..tostring(math.log(10))..tostring(math.exp(1))..tostring(math.atan2(1,2))..tostring(math.log10(1000))
return {math.frexp(8)}
return math.ldexp(1,10)
local t={5,2,8,1} table.sort(t) return t
local t={5,2,8,1} table.sort(t,function(a,b) return a>b end) return t
local t={} for i=1,40 do t['k'..i]=i end local r={} for k,v in pairs(t) do r[#r+1]=k end return r
local t={} for i=40,1,-1 do t[i]='v'..i end local r={} for k,v in pairs(t) do r[#r+1]=k end return r
local t={a=1,b=2,c=3,d=4,e=5,f=6} local r={} for k,v in pairs(t) do r[#r+1]=k end return r
local t={x=1,1,2,3,y=2} local r={} for k,v in pairs(t) do r[#r+1]=tostring(k) end return r
local t={} for i=1,20 do t[i*1.5]=i end local r={} for k,v in pairs(t) do r[#r+1]=tostring(k) end return r
local t={} for i=1,30 do t['k'..i]=i end for i=1,30,2 do t['k'..i]=nil end for i=50,60 do t['n'..i]=1 end local r={} for k,v in pairs(t) do r[#r+1]=k end return r
local r={} for w in string.gmatch('one two  three','%a+') do r[#r+1]=w end return r
local r={} for k,v in string.gmatch('a=1, b=2','(%w+)=(%w+)') do r[#r+1]=k..v end return r
return {string.gsub('hello world','(%w+)','<%1>')}
return {string.gsub('abc','%w','%0%0',2)}
return {string.gsub('$name is $x','%$(%w+)',{name='Bob'})}
return {string.match('key=val','(%w+)=(%w+)')}
return {string.find('a.b','.',1,true)}
return {string.find('abc','b',-1)}
return {string.match('2024-01-02','(%d+)-(%d+)-(%d+)')}
return {('x'):byte(),('abc'):sub(2),('%d'):format(5),('a,b'):find(',')}
return {string.gsub('abc','','-')}
return {string.match('  trim  ','^%s*(.-)%s*$')}
return {string.find('a\0b','\0')}
return {string.format('%s','a\0b'),#string.format('%q','a\0b')}
return {string.find('[[x]]','%b[]')}
return {string.match('THE (quick) fox','%((%a+)%)')}
return {string.match('hello',"()ll()")}
-- replies of commands
redis.call('del','k','l','h','z','s') return 1
return tostring(redis.call('get','nokey'))
return {type(redis.call('set','k','v')),redis.call('set','k','v').ok}
return redis.call('set','k','v')
return redis.call('get','k')
return redis.call('rpush','l','a','b','c')
return redis.call('lrange','l',0,-1)
return redis.call('lrange','nokey',0,-1)
return redis.call('hset','h','f','1','g','2')
return redis.call('hgetall','h')
return redis.call('hmget','h','f','nope','g')
local t=redis.call('hmget','h','f','nope','g') return {type(t[2]),tostring(t[2]),#t}
return redis.call('mget','k','nokey')
return redis.call('zadd','z','1.5','m','2','n')
return redis.call('zscore','z','m')
return redis.call('zrange','z',0,-1,'withscores')
return redis.call('zrangebyscore','z','-inf','+inf','limit',0,1)
return redis.call('sadd','s','x')
return redis.call('smembers','s')
return redis.call('ping')
return redis.call('ping','hello')
return redis.call('type','k')
return type(redis.call('time')[1])
return redis.call('exists','k','nokey')
return redis.call('incrbyfloat','f','1.5')
return redis.call('scan','0','count','0')
return redis.call('set','k','v','nx')
return tostring(redis.call('set','k','v','nx'))
return redis.call('set','k','v2','get')
redis.setresp(3) return redis.call('hgetall','h')
redis.setresp(3) return type(redis.call('hgetall','h').map)
redis.setresp(3) return redis.call('zscore','z','m')
redis.setresp(3) return redis.call('zscore','z','m').double
redis.setresp(3) return tostring(redis.call('get','nokey'))
redis.setresp(3) return redis.call('get','nokey')
redis.setresp(3) return redis.call('smembers','s')
redis.setresp(3) local r={} for k,v in pairs(redis.call('smembers','s').set) do r[#r+1]=k..tostring(v) end return r
redis.setresp(3) return redis.call('hmget','h','f','nope','g')
redis.setresp(3) local t=redis.call('hmget','h','nope','nope','g') return {type(t[1]),t[3]}
redis.setresp(3) return redis.call('zrange','z',0,-1,'withscores')
redis.setresp(3) return redis.call('zrange','z',0,-1,'withscores')[1][2].double
redis.setresp(3) return true
redis.setresp(3) return false
redis.setresp(3) return nil
redis.setresp(3) return {true,false,1.5}
redis.setresp(3) return {double=1.5}
redis.setresp(3) return redis.call('set','k','v')
redis.setresp(3) redis.setresp(2) return redis.call('hgetall','h')
redis.setresp(3) return redis.call('hgetall','nokey')
redis.setresp(3) return redis.pcall('nosuch')
return redis.call('zscore','z','m')
return redis.call('hgetall','h')
return true
-- which field decides, wherever the table keeps it: an index may come last in the order of `next`
local t={big_number='12',dddd=1,ok='S'} t.dddd=nil t.big_number=nil t[3]='v3' t[1]='v1' t[5]='v5' t[2]='v2' return t
local t={err='E x',dddd=1,map={q='r'}} t.dddd=nil t.map=nil t[3]='v3' t[1]='v1' t[5]='v5' t[2]='v2' return t
local t={dddd=1,ok=false,x1=2} t.dddd=nil t[1]='v1' t[2]='v2' return t
return {1,2,x=3,[5]=5}
return {map={q='r'},big_number='12'}
return {map={q='r'},verbatim_string={format='txt',string='z'}}
return {set={q=true},big_number='12'}
return {set={q=true},verbatim_string={format='txt',string='z'}}
return {map={q='r'},set={q=true}}
return {double=1.5,big_number='12',map={q='r'}}
return {big_number='12',verbatim_string={format='txt',string='z'}}
-- members of sets and keys of maps may be anything
return {map={[{map={a={map={b=1}}}}]=1}}
return {set={[{map={a=1,[2]=3}}]=true}}
return {set={[{map={a=1,[true]=3,[{1}]=2}}]=true}}
return {set={[{set={a=1,[{map={x={}}}]=1}}]=true}}
return {map={[{1,{2,{map={x='y'}}}}]={set={a=true}}}}
