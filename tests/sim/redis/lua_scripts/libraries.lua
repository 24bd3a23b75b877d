-- cjson: options
return {cjson.encode_sparse_array()}
return {tostring(cjson.encode_sparse_array(true)),cjson.encode({[1]=1,[100]=2})}
return {cjson.encode_sparse_array(false,3,5)}
cjson.encode_sparse_array(false,2,10)
cjson.encode_sparse_array(1)
cjson.encode_sparse_array('on') return tostring(cjson.encode_sparse_array('off'))
cjson.encode_sparse_array('maybe')
cjson.encode_sparse_array(nil,-1)
cjson.encode_sparse_array(nil,'x')
cjson.encode_sparse_array(nil,nil,-1)
cjson.encode_sparse_array(nil,nil,3e9)
cjson.encode_sparse_array(1,2,3,4)
cjson.encode_sparse_array({})
return cjson.encode_max_depth()
cjson.encode_max_depth(0)
cjson.encode_max_depth(-1)
cjson.encode_max_depth('x')
cjson.encode_max_depth(1,2)
return {cjson.encode_max_depth(5),pcall(cjson.encode,{{{{{1}}}}})}
return {pcall(cjson.encode,{{{{{{1}}}}}})}
return cjson.encode_max_depth(1000)
return cjson.decode_max_depth()
return {cjson.decode_max_depth(3),pcall(cjson.decode,'[[[1]]]')}
return {pcall(cjson.decode,'[[[[1]]]]')}
return {pcall(cjson.decode,'[[{"a":[1]}]]')}
cjson.decode_max_depth(0)
return cjson.decode_max_depth(1000)
return cjson.encode_number_precision()
return {cjson.encode_number_precision(3),cjson.encode({1.23456,100000,0.1,65535,7})}
cjson.encode_number_precision(15)
cjson.encode_number_precision(0)
cjson.encode_number_precision({})
return {cjson.encode_number_precision(14),cjson.encode(1.23456789012345678)}
return {tostring(cjson.encode_keep_buffer()),tostring(cjson.encode_keep_buffer(false)),tostring(cjson.encode_keep_buffer('on'))}
cjson.encode_keep_buffer(5)
return tostring(cjson.encode_invalid_numbers())
return {tostring(cjson.encode_invalid_numbers('null')),cjson.encode({1/0,-1/0,0/0})}
return {tostring(cjson.encode_invalid_numbers()),tostring(cjson.encode_invalid_numbers(true)),cjson.encode({1/0,-1/0,0/0,-(0/0)})}
return {tostring(cjson.encode_invalid_numbers('on')),tostring(cjson.encode_invalid_numbers(false))}
cjson.encode_invalid_numbers('what')
cjson.encode_invalid_numbers(2)
return cjson.encode(0/0)
return cjson.encode({1/0})
return tostring(cjson.decode_invalid_numbers())
return {tostring(cjson.decode_invalid_numbers(false)),pcall(cjson.decode,'0x10')}
return {pcall(cjson.decode,'NaN')}
return {pcall(cjson.decode,'01')}
return {pcall(cjson.decode,'[-01]')}
return {pcall(cjson.decode,'-Infinity')}
return {pcall(cjson.decode,'[1,2.5,-0,"x"]')}
return tostring(cjson.decode_invalid_numbers(true))
return {cjson.decode('0x10'),tostring(cjson.decode('NaN')),tostring(cjson.decode('-inf')),cjson.decode('01')}
-- cjson: new modules have settings of their own
local c=cjson.new() c.encode_max_depth(2) return {tostring(pcall(c.encode,{{{1}}})),cjson.encode({{{1}}}),c._NAME,c._VERSION,tostring(c.null==cjson.null)}
local c=cjson.new() c.x=5 return {c.x,tostring(c==cjson),type(c.new)}
return {tostring(pcall(function() cjson.new().encode=nil end))}
local r={} for k in pairs(cjson.new()) do r[#r+1]=k end table.sort(r) return r
-- cjson: arguments
cjson.encode()
cjson.encode(1,2)
cjson.decode()
cjson.decode('1','2')
cjson.decode({})
cjson.decode(nil)
return cjson.decode(5)
return cjson.decode('')
return cjson.decode(' ')
return cjson.decode('1 2')
return cjson.decode('[1,]')
return cjson.decode('{"a":1,}')
return cjson.decode('{1:2}')
return cjson.decode('{"a" 1}')
return cjson.decode('{"a":1 "b":2}')
return cjson.decode('[1 2]')
return cjson.decode('[')
return cjson.decode('{')
return cjson.decode('{"a"')
return cjson.decode('"abc')
return cjson.decode('"\\x"')
return cjson.decode('"\\u12"')
return cjson.decode('"\\ud800"')
return cjson.decode('"\\ude00"')
return cjson.decode('tru')
return cjson.decode('nul')
return cjson.decode('*')
return cjson.decode('\0\0')
return cjson.decode('1\0x')
return cjson.decode('[1,\0')
return cjson.decode('"a\0b"')
local f=cjson.decode return f('x')
local f=cjson.decode f('x')
return {pcall(cjson.decode,'x')}
return cjson.encode(function() end)
return cjson.encode(redis.call)
return cjson.encode(coroutine.create(function() end))
return cjson.encode({[{}]=1})
return cjson.encode({[true]=1})
return cjson.encode({1,2,[true]=1})
return cjson.encode(redis)
return cjson.encode(string)
return cjson.encode(nil)
return cjson.encode(cjson.null)
return cjson.encode({cjson.null,nil,1})
return cjson.encode({nil,nil,3})
return cjson.encode({[11]=1})
return cjson.encode({[10]=1})
return cjson.encode({[1]=1,[21]=2})
return cjson.encode({1,2,3,4,5,6,[12]=1})
return cjson.encode({1,2,3,4,5,6,[13]=1})
return cjson.encode({[1.5]=1})
return cjson.encode({[0]=1})
return cjson.encode({[-1]=1})
return cjson.encode({[1e10]=1})
return cjson.encode({[1e10]=1,[2]=2})
return cjson.encode({})
return cjson.encode({{}})
return cjson.encode({a={}})
return cjson.encode({a={},b={{}},c=''})
return cjson.encode('\0\1\31\127\128\255/"\\')
return cjson.encode(string.rep('/',50)..string.rep('"',50)..'\127\0\200')
return cjson.encode(1e15)..cjson.encode(123456789012345)..cjson.encode(0.1)..cjson.encode(-0)..cjson.encode(100)..cjson.encode(1e100)..cjson.encode(2^53)
return cjson.encode({a=1,['1']=2})
return cjson.encode({[1]='a',['1']='b'})
return cjson.encode(setmetatable({},{__index={1,2}}))
return cjson.encode(setmetatable({1},{__index={1,2}}))
local t={} t[1]=t return tostring(pcall(cjson.encode,t))
local t={} t[1]=t return select(2,pcall(cjson.encode,t))
local t={} t.a=t return select(2,pcall(cjson.encode,t))
local t={} for i=1,998 do t={t} end return #cjson.encode(t)
local t={} for i=1,999 do t={t} end return #cjson.encode(t)
local t={} for i=1,1000 do t={t} end return #cjson.encode(t)
local t={} for i=1,1000 do t={a=t} end return #cjson.encode(t)
local t=1 for i=1,1000 do t={a=t} end return #cjson.encode(t)
local t=cjson.decode(string.rep('[',1000)..string.rep(']',1000)) return type(t)
local t=cjson.decode(string.rep('[',1001)..string.rep(']',1001)) return type(t)
return cjson.decode(string.rep('[',1001))
return cjson.decode(string.rep('{"a":',1001))
cjson.encode_max_depth(100000) local t={} for i=1,20000 do t={t} end local ok,e=pcall(cjson.encode,t) cjson.encode_max_depth(1000) return e
cjson.encode_max_depth(100000) local t={} for i=1,20000 do t={a=t} end local ok,e=pcall(cjson.encode,t) cjson.encode_max_depth(1000) return e
cjson.encode_max_depth(100000) local t={} for i=1,20000 do t={a={t}} end local ok,e=pcall(cjson.encode,t) cjson.encode_max_depth(1000) return e
cjson.decode_max_depth(100000) local ok,e=pcall(cjson.decode,string.rep('[',20000)) cjson.decode_max_depth(1000) return e
cjson.decode_max_depth(100000) local ok,e=pcall(cjson.decode,string.rep('{"a":',20000)) cjson.decode_max_depth(1000) return e
cjson.decode_max_depth(100000) local ok,e=pcall(cjson.decode,string.rep('[{"a":',20000)) cjson.decode_max_depth(1000) return e
local t=cjson.decode('{"a":null,"b":[null,false,true],"c":{}}') return {tostring(t.a==cjson.null),type(t.a),#t.b,tostring(t.b[1]),tostring(t.b[2]),type(t.c)}
local t=cjson.decode('{"a":1,"b":2,"a":3,"":4,"a b":5}') return {t.a,t.b,t[''],t['a b']}
local r={} for k,v in pairs(cjson.decode('{"z":1,"y":2,"x":3,"w":4,"v":5,"u":6,"t":7,"s":8,"r":9}')) do r[#r+1]=k end return r
return cjson.encode(cjson.decode('{"clientId":"c","topicName":"a/b","time":1700000000123,"qos":1,"packetId":0,"packetType":"PUBLISH","payload":"QUJD/w==","retained":false,"msgExpiryInterval":3600}'))
return {cjson.decode(' "x" '),cjson.decode('\n1.5\t'),tostring(cjson.decode('true')),tostring(cjson.decode('null'))}
return cjson.decode('"\\u0041\\u00e9\\u20ac\\ud83d\\ude00\\b\\f\\n\\r\\t\\/\\\\\\""')
return {cjson.decode('{ "a" : [ 1 , 2 ] , "b" : "c\\"d\\\\" }').b,cjson.decode('["\\\\","\\"","a\\\\\\"b"]')[3]}
return {cjson.decode('9007199254740993'),tostring(cjson.decode('12345678901234567890')),tostring(cjson.decode('1e999')),tostring(cjson.decode('-0'))}
-- cmsgpack
cmsgpack.pack()
return cmsgpack.pack(nil)
return cmsgpack.pack(redis.call)
return cmsgpack.pack(1,'a',true,false,nil,1.5,{})
return cmsgpack.pack({1,2,{3}})
return cmsgpack.pack({a=1})
return cmsgpack.pack({1,nil,3})
return cmsgpack.pack({[1]=1,[3]=3})
return cmsgpack.pack({[0]=1})
return cmsgpack.pack({[1.5]=1})
local t={} t[1]=t return cmsgpack.pack(t)
local t={} t.a=t return cmsgpack.pack(t)
local t={} for i=1,20 do t={t} end return cmsgpack.pack(t)
local t={} for i=1,20 do t[i]=i end return cmsgpack.pack(t)
local t={} for i=1,70000 do t[i]=1 end return #cmsgpack.pack(t)
local t={} for i=1,20 do t['k'..i]=i end return cmsgpack.pack(t)
return #cmsgpack.pack(string.rep('x',31))..','..#cmsgpack.pack(string.rep('x',32))..','..#cmsgpack.pack(string.rep('x',256))..','..#cmsgpack.pack(string.rep('x',65536))
return {cmsgpack.unpack(cmsgpack.pack(1,'a',true,false,nil,1.5,{1,{2}}))}
return cmsgpack.unpack('')
cmsgpack.unpack()
cmsgpack.unpack({})
return cmsgpack.unpack(5)
cmsgpack.unpack('\193')
cmsgpack.unpack('\196\1a')
cmsgpack.unpack('\146\1')
cmsgpack.unpack('\217')
cmsgpack.unpack('\129\192\1')
cmsgpack.unpack('\129\203\127\248\0\0\0\0\0\0\1')
return {cmsgpack.unpack_one('\1\2\3')}
return {cmsgpack.unpack_one('\1\2\3',1)}
return {cmsgpack.unpack_one('\1\2\3',3)}
cmsgpack.unpack_one('\1\2\3',4)
cmsgpack.unpack_one('\1\2\3',-1)
cmsgpack.unpack_one('\1\2\3','x')
return {cmsgpack.unpack_limit('\1\2\3',2)}
return {cmsgpack.unpack_limit('\1\2\3',2,1)}
return {cmsgpack.unpack_limit('\1\2\3',0)}
return {cmsgpack.unpack_limit('\1\2\3',0,1)}
cmsgpack.unpack_limit('\1\2\3',-1)
cmsgpack.unpack_limit('\1\2\3')
cmsgpack.unpack_limit('\1\2\3',1,-1)
cmsgpack.unpack_limit('\1\2\3',1,9)
return select('#',cmsgpack.unpack(string.rep('\1',7000)))
local r={} for k,v in pairs(cmsgpack.unpack(cmsgpack.pack({a=1,b=2,c=3,d=4,e=5}))) do r[#r+1]=k end return r
-- struct
struct.pack()
struct.pack('i')
struct.pack('i',{})
struct.pack('s',nil)
struct.pack('c5','abc')
struct.pack('q',1)
struct.pack('i33',1)
struct.pack('!3i',1)
struct.pack('i99999999999',1)
return struct.pack('>HB<H!4bi',258,3,258,1,7)
return struct.pack('sc3c0x','ab','cdef','gh')
return struct.pack('>fd',1.5,-2.25)
return {struct.unpack('>HBs',struct.pack('>HBs',258,3,'hello'))}
return {struct.unpack('<i2>i2',"\1\2\1\2")}
return {struct.unpack('bBhHlL',string.rep('\255',40))}
return {struct.unpack('>i3',"\255\255\254")}
return {struct.unpack('c0','abc')}
return {struct.unpack('bc0','\3abcd')}
struct.unpack('bc0','\9abcd')
struct.unpack('i','abc')
struct.unpack('s','abc')
struct.unpack('i','abcd',0)
struct.unpack('i','abcd',-5)
struct.unpack('i','abcd',2)
return {struct.unpack('i','abcdefgh',5)}
struct.unpack('i')
struct.unpack()
struct.unpack('i',{})
struct.unpack('i','abcd',{})
return struct.size('i')+struct.size('!8bd')+struct.size('>Hc5x')
struct.size('s')
struct.size('c0')
struct.size('q')
struct.size()
local f=struct.pack return f('i')
return struct.pack('i')
-- bit
return {bit.tobit(0xffffffff),bit.tobit(2^32+5),bit.tobit(1.5),bit.tobit(2.5),bit.tobit('0x10')}
return {bit.band(0xff,0x0f,3),bit.bor(1,2,4),bit.bxor(1,3),bit.bnot(0)}
return {bit.lshift(1,31),bit.rshift(-1,28),bit.arshift(-256,4),bit.rol(0x12345678,12),bit.ror(0x12345678,12),bit.bswap(0x12345678),bit.lshift(1,33)}
return {bit.tohex(1),bit.tohex(-1),bit.tohex(0xffff,4),bit.tohex(0xabc,-4),bit.tohex(1,0),bit.tohex(1,100),bit.tohex(-1,-2^31)}
bit.band()
bit.band('x')
bit.band(1,{})
bit.band(1,nil,2)
bit.lshift(1)
bit.tohex()
bit.tohex(1,'x')
bit.tohex(1,nil)
return bit.tobit(nil)
return bit.band(1)
