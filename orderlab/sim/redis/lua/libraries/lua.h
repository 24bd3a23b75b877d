#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stddef.h>

/* The part of the C interface of Lua 5.1 that is used here. lupa brings the functions, and no header; they are looked up in
   the library that calls, as another version of Lua may be loaded as well. Included after Python.h. */
typedef struct lua_State lua_State;
typedef int (*lua_CFunction)(lua_State *);
typedef void *(*lua_Alloc)(void *, void *, size_t, size_t);
typedef struct {
    int event;
    const char *name, *namewhat, *what, *source;
    int currentline, nups, linedefined, lastlinedefined;
    char short_src[60], more[64];
} lua_Debug;
typedef void (*lua_Hook)(lua_State *, lua_Debug *);
enum { GC_COUNT = 3, GC_STEP = 5 };
enum { NIL = 0, BOOLEAN = 1, NUMBER = 3, STRING = 4, TABLE = 5 };
enum { REGISTRY = -10000 };
#define UPVALUE(i) (-10002 - (i))
#define INTERFACE(F) \
    F(void, call, (lua_State *, int, int)) \
    F(int, checkstack, (lua_State *, int)) \
    F(int, cpcall, (lua_State *, lua_CFunction, void *)) \
    F(void, createtable, (lua_State *, int, int)) \
    F(int, gc, (lua_State *, int, int)) \
    F(lua_Alloc, getallocf, (lua_State *, void **)) \
    F(int, getinfo, (lua_State *, const char *, lua_Debug *)) \
    F(int, getstack, (lua_State *, int, lua_Debug *)) \
    F(int, gettop, (lua_State *)) \
    F(void, insert, (lua_State *, int)) \
    F(void *, newuserdata, (lua_State *, size_t)) \
    F(int, next, (lua_State *, int)) \
    F(size_t, objlen, (lua_State *, int)) \
    F(int, pcall, (lua_State *, int, int, int)) \
    F(void, pushboolean, (lua_State *, int)) \
    F(void, pushcclosure, (lua_State *, lua_CFunction, int)) \
    F(void, pushlightuserdata, (lua_State *, void *)) \
    F(void, pushlstring, (lua_State *, const char *, size_t)) \
    F(void, pushnil, (lua_State *)) \
    F(void, pushnumber, (lua_State *, double)) \
    F(void, pushvalue, (lua_State *, int)) \
    F(int, rawequal, (lua_State *, int, int)) \
    F(void, rawget, (lua_State *, int)) \
    F(void, rawgeti, (lua_State *, int, int)) \
    F(void, rawset, (lua_State *, int)) \
    F(void, rawseti, (lua_State *, int, int)) \
    F(void, remove, (lua_State *, int)) \
    F(void, replace, (lua_State *, int)) \
    F(void, setallocf, (lua_State *, lua_Alloc, void *)) \
    F(int, sethook, (lua_State *, lua_Hook, int, int)) \
    F(void, settop, (lua_State *, int)) \
    F(int, toboolean, (lua_State *, int)) \
    F(lua_CFunction, tocfunction, (lua_State *, int)) \
    F(const char *, tolstring, (lua_State *, int, size_t *)) \
    F(double, tonumber, (lua_State *, int)) \
    F(const void *, topointer, (lua_State *, int)) \
    F(lua_State *, tothread, (lua_State *, int)) \
    F(void *, touserdata, (lua_State *, int)) \
    F(int, type, (lua_State *, int))
#define FIELD(result, name, parameters) result(*name) parameters;
static struct { INTERFACE(FIELD) } lua;

/* Places that the table on top of the stack has, empty ones among them; the interface does not show it. These are a part of Table of Lua 5.1 with
   pointers of 64 bits, and `knows_capacity` tries whether they lie there. */
enum { TABLE_LOG_NODES = 11, TABLE_ARRAY = 56 };

static size_t capacity_of(lua_State *L, int place) {
    const char *table = lua.topointer(L, place);
    int array = *(const int *)(table + TABLE_ARRAY), log = *(const unsigned char *)(table + TABLE_LOG_NODES);
    return (size_t)array + ((size_t)1 << log);
}

static int knows_capacity(lua_State *L) {
    static const struct { int array, hash; size_t capacity; } tried[] = {{0, 0, 1}, {100, 0, 101}, {0, 64, 64}, {7, 32, 39}};
    if (sizeof(void *) != 8)
        return 0;
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
        lua.createtable(L, tried[i].array, tried[i].hash);
        const char *table = lua.topointer(L, -1);
        int is_known = *(const int *)(table + TABLE_ARRAY) == tried[i].array && table[TABLE_LOG_NODES] < 8
            && capacity_of(L, -1) == tried[i].capacity;
        lua.settop(L, -2);
        if (!is_known)
            return 0;
    }
    return 1;
}

/* A whole number in decimal, as it ends before `end`; where it begins. */
static char *write_whole(char *end, long long number) {
    unsigned long long left = number < 0 ? 0 - (unsigned long long)number : (unsigned long long)number;
    do
        *--end = (char)('0' + left % 10);
    while (left /= 10);
    if (number < 0)
        *--end = '-';
    return end;
}

/* Whether every function of the interface was found in the library that holds the address `caller`. */
static int find_interface(void *caller) {
    Dl_info library;
    if (!dladdr(caller, &library))
        return 0;
    void *handle = dlopen(library.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle)
        return 0;
    int found = 1;
#define FIND(result, name, parameters) found &= (*(void **)&lua.name = dlsym(handle, "lua_" #name)) != NULL;
    INTERFACE(FIND)
    dlclose(handle);
    return found;
}
