/* Reads and writes ordinary JSON, or gives up: what cjson.lua and json.py do, in machine code (sim/native/choose.py).

   What these functions cannot vouch for (\u escapes, NUL bytes, NaN, deep nesting, sparse arrays, anything malformed) is
   left to the libraries in Lua and Python, which word the errors of lua-cjson. What they accept has the same value there.
   Memory comes from Lua alone, so its limit holds and an error of memory may jump out of any of these functions. No limit of
   time holds in here, so what could take long is left to Lua as well. */

#include "lua.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_BYTES_MAX = 63, EXACT_DIGITS = 15, DEPTH_MAX = 1000, TEXT_BYTES_MAX = 1 << 20 };
enum { CALM_KILOBYTES = 4096 };
enum { TABLES_MAX = 250 }; /* an emptied table takes as long as what it once held */
enum { FEW_PLACES = 1000, PLACES_PER_ITEM = 8 };
enum { LARGE_BYTES = 4096, BYTES_PER_BYTE = 16 };

/* The collector takes a step with each string and table; growing tables and buffers give it no occasion, and Lua has no second
   try when memory is full. */
static void collect(lua_State *L, size_t text_bytes) {
    if (text_bytes > LARGE_BYTES)
        lua.gc(L, GC_STEP, (int)(text_bytes * BYTES_PER_BYTE >> 10));
}

/* A number from 0 to `most`; NaN, and what is below, is 0. */
static int setting(lua_State *L, int place, int most) {
    double value = lua.tonumber(L, place);
    return value >= most ? most : value > 0 ? (int)value : 0;
}

/* Reading --------------------------------------------------------------------------------------------------------- */

/* Names of fields recur in the same order. What stood at each place last is kept, quotation marks and all, with Lua's string at the same place of the
   table at NAMES: to find that anew takes longer than to compare. */
enum { NAMES = UPVALUE(2), NAMES_MAX = 64, NAME_BYTES_MAX = 30 };
typedef struct {
    struct {
        unsigned char length;
        char text[NAME_BYTES_MAX + 1];
    } names[NAMES_MAX];
} Names;

typedef struct {
    lua_State *L;
    const char *at, *end; /* *end is the NUL behind every Lua string */
    Names *names;
    int name_count;
} Reader;

static void skip_space(Reader *r) {
    while (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')
        r->at++;
}

/* A string with escapes, without what stands in quotes around it; `length` bytes from `from`. */
static int push_unescaped(Reader *r, const char *from, size_t length) {
    char *text = lua.newuserdata(r->L, length), *to = text;
    for (const char *at = from; at < from + length; at++) {
        if (*at != '\\') {
            *to++ = *at;
            continue;
        }
        switch (*++at) {
        case '"': case '\\': case '/': *to++ = *at; break;
        case 'b': *to++ = '\b'; break;
        case 'f': *to++ = '\f'; break;
        case 'n': *to++ = '\n'; break;
        case 'r': *to++ = '\r'; break;
        case 't': *to++ = '\t'; break;
        default: return 0;
        }
    }
    lua.pushlstring(r->L, text, (size_t)(to - text));
    lua.remove(r->L, -2);
    return 1;
}

/* The functions below push one value and return 1, or give up with 0. */

static int push_string(Reader *r) {
    const char *from = ++r->at, *at = memchr(from, '"', (size_t)(r->end - from));
    if (!at)
        return 0;
    if (memchr(from, '\\', (size_t)(at - from))) {
        for (at = from; *at != '"'; at++) {
            if (*at == '\\')
                at++;
            if (at >= r->end || *at == '\0')
                return 0;
        }
        r->at = at + 1;
        return push_unescaped(r, from, (size_t)(at - from));
    }
    if (memchr(from, '\0', (size_t)(at - from)))
        return 0;
    r->at = at + 1;
    lua.pushlstring(r->L, from, (size_t)(at - from));
    return 1;
}

/* The same for the name of a field. */
static int push_name(Reader *r) {
    int place = r->name_count++ % NAMES_MAX;
    size_t length = r->names->names[place].length, left = (size_t)(r->end - r->at);
    if (length && length <= left && !memcmp(r->at, r->names->names[place].text, length)) {
        r->at += length;
        lua.rawgeti(r->L, NAMES, place + 1);
        return 1;
    }
    const char *from = r->at;
    if (!push_string(r))
        return 0;
    length = (size_t)(r->at - from);
    if (length <= NAME_BYTES_MAX && !memchr(from, '\\', length)) {
        r->names->names[place].length = 0;
        lua.pushvalue(r->L, -1);
        lua.rawseti(r->L, NAMES, place + 1);
        memcpy(r->names->names[place].text, from, length);
        r->names->names[place].length = (unsigned char)length;
    }
    return 1;
}

static int push_number(Reader *r) {
    const char *from = r->at, *at = from + (*from == '-');
    double value = 0;
    if (*at < '0' || *at > '9')
        return 0;
    for (; *at >= '0' && *at <= '9'; at++)
        value = value * 10 + (*at - '0');
    if (at - from > EXACT_DIGITS || *at == '.' || *at == 'e' || *at == 'E' || *at == '+' || *at == '-') {
        char copy[NUMBER_BYTES_MAX + 1], *last;
        while ((*at >= '0' && *at <= '9') || *at == '.' || *at == 'e' || *at == 'E' || *at == '+' || *at == '-')
            at++;
        if (at - from > NUMBER_BYTES_MAX)
            return 0;
        memcpy(copy, from, (size_t)(at - from));
        copy[at - from] = '\0';
        value = strtod(copy, &last);
        if (*last != '\0')
            return 0;
    } else if (*from == '-') {
        value = -value;
    }
    r->at = at;
    lua.pushnumber(r->L, value);
    return 1;
}

static int push_word(Reader *r, const char *word, size_t length) {
    if (strncmp(r->at, word, length) != 0)
        return 0;
    r->at += length;
    if (*r->at >= 'a' && *r->at <= 'z')
        return 0;
    if (word[0] == 'n')
        lua.pushvalue(r->L, UPVALUE(1));
    else
        lua.pushboolean(r->L, word[0] == 't');
    return 1;
}

static int push_value(Reader *r, int depth_left);

static int push_array(Reader *r, int depth_left) {
    lua.createtable(r->L, 0, 0); /* empty, as lua-cjson begins: the order of `next` depends on how a table grew */
    r->at++;
    skip_space(r);
    if (*r->at == ']') {
        r->at++;
        return 1;
    }
    for (int i = 1;; i++) {
        if (!push_value(r, depth_left))
            return 0;
        lua.rawseti(r->L, -2, i);
        skip_space(r);
        if (*r->at == ']') {
            r->at++;
            return 1;
        }
        if (*r->at != ',')
            return 0;
        r->at++;
        skip_space(r);
    }
}

static int push_object(Reader *r, int depth_left) {
    lua.createtable(r->L, 0, 0);
    r->at++;
    skip_space(r);
    if (*r->at == '}') {
        r->at++;
        return 1;
    }
    for (;;) {
        if (*r->at != '"' || !push_name(r))
            return 0;
        skip_space(r);
        if (*r->at != ':')
            return 0;
        r->at++;
        skip_space(r);
        if (!push_value(r, depth_left))
            return 0;
        lua.rawset(r->L, -3);
        skip_space(r);
        if (*r->at == '}') {
            r->at++;
            return 1;
        }
        if (*r->at != ',')
            return 0;
        r->at++;
        skip_space(r);
    }
}

static int push_value(Reader *r, int depth_left) {
    switch (*r->at) {
    case '"': return push_string(r);
    case '{': return depth_left > 0 && lua.checkstack(r->L, 5) && push_object(r, depth_left - 1);
    case '[': return depth_left > 0 && lua.checkstack(r->L, 5) && push_array(r, depth_left - 1);
    case 't': return push_word(r, "true", 4);
    case 'f': return push_word(r, "false", 5);
    case 'n': return push_word(r, "null", 4);
    default: return push_number(r);
    }
}

/* read(text, depth_max): whether the text was read, and its value. Upvalues: 1 the null of JSON, 2 NAMES, 3 Names. */
static int read_json(lua_State *L) {
    size_t length;
    const char *text = lua.tolstring(L, 1, &length);
    Reader r = {L, text, text + length, lua.touserdata(L, UPVALUE(3)), 0};
    if (length > TEXT_BYTES_MAX) {
        lua.pushboolean(L, 0);
        return 1;
    }
    collect(L, length);
    skip_space(&r);
    if (push_value(&r, setting(L, 2, DEPTH_MAX))) {
        skip_space(&r);
        if (r.at == r.end) { /* a NUL before the end has stopped everything above */
            lua.pushboolean(L, 1);
            lua.pushvalue(L, -2);
            return 2;
        }
    }
    lua.pushboolean(L, 0);
    return 1;
}

/* Writing --------------------------------------------------------------------------------------------------------- */

enum { BUFFER = 3, FIRST_BYTES = 4096, PORTION_BYTES = 128, ESCAPED_BYTES_MAX = 6 };

typedef struct {
    lua_State *L;
    char *text;
    size_t used, room;
    int tables, knows_capacity;
    char first[FIRST_BYTES]; /* beyond it a userdata at BUFFER */
} Writer;

static char *reserve(Writer *w, size_t more) {
    if (w->room - w->used < more) {
        size_t room = 2 * w->room;
        while (room - w->used < more)
            room *= 2;
        char *text = lua.newuserdata(w->L, room);
        memcpy(text, w->text, w->used);
        lua.replace(w->L, BUFFER);
        w->text = text;
        w->room = room;
    }
    return w->text + w->used;
}

static void put(Writer *w, const char *text, size_t length) {
    memcpy(reserve(w, length), text, length);
    w->used += length;
}

static void put_byte(Writer *w, char byte) {
    *reserve(w, 1) = byte;
    w->used++;
}

static const char is_escaped[256] = {
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, /* up to 31 */
    ['"'] = 1, ['\\'] = 1, ['/'] = 1, [127] = 1,
};

static void put_string(Writer *w, const char *text, size_t length) {
    static const char hex[] = "0123456789abcdef";
    const char *end = text + length;
    put_byte(w, '"');
    while (text < end) {
        const char *stop = end - text < PORTION_BYTES ? end : text + PORTION_BYTES;
        char *to = reserve(w, ESCAPED_BYTES_MAX * PORTION_BYTES);
        for (; text < stop; text++) {
            unsigned char byte = (unsigned char)*text;
            if (!is_escaped[byte]) {
                *to++ = *text;
                continue;
            }
            *to++ = '\\';
            switch (byte) {
            case '"': case '\\': case '/': *to++ = *text; break;
            case '\b': *to++ = 'b'; break;
            case '\t': *to++ = 't'; break;
            case '\n': *to++ = 'n'; break;
            case '\f': *to++ = 'f'; break;
            case '\r': *to++ = 'r'; break;
            default:
                memcpy(to, "u00", 3);
                to[3] = hex[byte >> 4];
                to[4] = hex[byte & 15];
                to += ESCAPED_BYTES_MAX - 1;
            }
        }
        w->used = (size_t)(to - w->text);
    }
    put_byte(w, '"');
}

/* As "%.14g" writes it. Gives up on what is no finite number. */
static int put_number(Writer *w, double value) {
    char digits[32];
    if (!isfinite(value))
        return 0;
    double size = fabs(value);
    if (size < 1e14 && size == floor(size) && !(value == 0 && signbit(value))) {
        char *at = write_whole(digits + sizeof digits, (long long)value);
        put(w, at, (size_t)(digits + sizeof digits - at));
    } else {
        put(w, digits, (size_t)snprintf(digits, sizeof digits, "%.14g", value));
    }
    return 1;
}

/* The largest key of the array on top of the stack; -1 for an object, -2 to give up on a sparse one. */
static int array_length(Writer *w, int ratio, int safe) {
    int largest = 0, items = 0;
    lua.pushnil(w->L);
    while (lua.next(w->L, -2)) {
        double key = lua.type(w->L, -2) == NUMBER ? lua.tonumber(w->L, -2) : 0;
        lua.settop(w->L, -2);
        if (key < 1 || floor(key) != key) {
            lua.settop(w->L, -2);
            return -1;
        }
        if (key > 2147483647) {
            lua.settop(w->L, -2);
            return -2;
        }
        if (key > largest)
            largest = (int)key;
        items++;
    }
    if (w->knows_capacity && capacity_of(w->L, -1) > FEW_PLACES + (size_t)items * PLACES_PER_ITEM)
        return -2; /* emptied: to look through it is counted elsewhere */
    return ratio > 0 && largest > (double)items * ratio && largest > safe ? -2 : largest;
}

typedef struct {
    int depth_max, ratio, safe;
} Settings;

/* Write the value on top of the stack and leave it there. Upvalues: 1 the null of JSON, 2 what read-only tables stand for. */
static int put_value(Writer *w, const Settings *settings, int depth);

static int put_table(Writer *w, const Settings *settings, int depth) {
    lua_State *L = w->L;
    if (depth > settings->depth_max || ++w->tables > TABLES_MAX || !lua.checkstack(L, 8))
        return 0;
    lua.pushvalue(L, -1);
    lua.rawget(L, UPVALUE(2));
    if (lua.type(L, -1) == NIL)
        lua.settop(L, -2);
    else
        lua.replace(L, -2);
    int length = array_length(w, settings->ratio, settings->safe);
    if (length == -2)
        return 0;
    if (length > 0) {
        for (int i = 1; i <= length; i++) {
            put_byte(w, i == 1 ? '[' : ',');
            lua.rawgeti(L, -1, i);
            if (!put_value(w, settings, depth))
                return 0;
            lua.settop(L, -2);
        }
        put_byte(w, ']');
        return 1;
    }
    char lead = '{';
    lua.pushnil(L);
    while (lua.next(L, -2)) {
        put_byte(w, lead);
        lead = ',';
        if (lua.type(L, -2) == STRING) {
            size_t size;
            const char *name = lua.tolstring(L, -2, &size);
            put_string(w, name, size);
        } else if (lua.type(L, -2) == NUMBER) {
            put_byte(w, '"');
            if (!put_number(w, lua.tonumber(L, -2)))
                return 0;
            put_byte(w, '"');
        } else {
            return 0;
        }
        put_byte(w, ':');
        if (!put_value(w, settings, depth))
            return 0;
        lua.settop(L, -2);
    }
    if (lead == '{')
        put_byte(w, '{');
    put_byte(w, '}');
    return 1;
}

static int put_value(Writer *w, const Settings *settings, int depth) {
    size_t size;
    const char *text;
    if (w->used > TEXT_BYTES_MAX)
        return 0;
    switch (lua.type(w->L, -1)) {
    case STRING:
        text = lua.tolstring(w->L, -1, &size);
        if (size > TEXT_BYTES_MAX)
            return 0;
        put_string(w, text, size);
        return 1;
    case NUMBER: return put_number(w, lua.tonumber(w->L, -1));
    case TABLE: return put_table(w, settings, depth + 1);
    case BOOLEAN:
        if (lua.toboolean(w->L, -1))
            put(w, "true", 4);
        else
            put(w, "false", 5);
        return 1;
    case NIL: put(w, "null", 4); return 1;
    default:
        if (!lua.rawequal(w->L, -1, UPVALUE(1)))
            return 0;
        put(w, "null", 4);
        return 1;
    }
}

/* write(value, depth_max, sparse_ratio, sparse_safe): the text, or nothing. Numbers have 14 digits. */
static int write_json(lua_State *L) {
    Settings settings = {setting(L, 2, DEPTH_MAX), setting(L, 3, 2147483647), setting(L, 4, 2147483647)};
    Writer w; /* not initialized as a whole: `first` is large */
    w.L = L;
    w.text = w.first;
    w.used = 0;
    w.room = FIRST_BYTES;
    w.tables = 0;
    w.knows_capacity = knows_capacity(L);
    if (lua.gc(L, GC_COUNT, 0) > CALM_KILOBYTES)
        return 0;
    lua.settop(L, 1);
    lua.pushnil(L);
    lua.pushnil(L); /* BUFFER */
    lua.pushvalue(L, 1);
    if (!put_value(&w, &settings, 0))
        return 0;
    collect(L, w.used);
    lua.pushlstring(L, w.text, w.used);
    return 1;
}

/* open(null, contents): read and write; nothing where they cannot be had. */
int orderlab_json(lua_State *L) {
    if (!find_interface(__builtin_return_address(0)))
        return 0;
    lua.settop(L, 2);
    lua.pushvalue(L, 1);
    lua.createtable(L, NAMES_MAX, 0);
    memset(lua.newuserdata(L, sizeof(Names)), 0, sizeof(Names));
    lua.pushcclosure(L, read_json, 3);
    lua.pushvalue(L, 1);
    lua.pushvalue(L, 2);
    lua.pushcclosure(L, write_json, 2);
    return 2;
}
