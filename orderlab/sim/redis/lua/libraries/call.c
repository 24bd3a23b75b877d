/* Scripts on their way into Lua and redis.call on its way into Python, as lupa goes them and in a third of the time.

   `call` takes what has strings and numbers for arguments and comes back plain; all else is left to redis.lua and lupa. `run` runs a script
   of a node that nothing concerns but its keyspace (LuaEngine asks that), and hands its calls straight to the commands. What of such
   a call is not usual goes to LuaEngine._perform, as every call does that is made outside of `run`: both ways give the same.

   The memory of Lua may be full whenever something is pushed, and the error jumps out of these functions: nothing of Python's is
   held then but what the slot and LuaEngine hold, and not the lock of the interpreter either, unless `run` holds it anyway. No limit of
   time holds in here, so what is long is left to lupa as well, in portions. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "lua.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARGUMENTS_MAX = 1000, ARGUMENT_BYTES_MAX = 1 << 20, NUMBER_BYTES_MAX = 32, RESULTS_MAX = 8 };
enum { COMMANDS = 2048, NAME_BYTES_MAX = 24, SHORT_ARGUMENTS_MAX = 60, SHORT_WORDS_MAX = 5, SHORT_REPLY_MAX = 4096, VALUE_BYTES_MAX = 8 << 20 };
enum { FEW_ARGUMENTS = 8, EXTRA_ARGUMENT_BYTES = 64 }; /* as in sandbox.py */
enum { FAST_PATH = UPVALUE(1), OTHERWISE = UPVALUE(2) };

/* A command that a script may call without a closer look. */
typedef struct {
    char name[NAME_BYTES_MAX];
    size_t length;
    PyObject *text, *handler, *short_ways[SHORT_WORDS_MAX + 1];
    Py_ssize_t least, most;
    int is_write;
} Command;

static Command commands[COMMANDS]; /* of all Lua states; those that the kernel has */

/* Texts that scripts hand over come again: keys several times in a script, words in every one. A string of Lua is one object while it lives, so
   its address leads to what was made of it last time. The text itself decides whether it still is the same. */
enum { KEPT = 512, KEPT_BYTES_MAX = 64 };
typedef struct {
    const char *place;
    PyObject *text;
} Kept;
static Kept kept[KEPT];

static struct {
    const char *place;
    Command *command;
} found_before[KEPT];

static size_t slot_of(const char *place) {
    return ((uintptr_t)place >> 4 ^ (uintptr_t)place >> 13) % KEPT;
}

/* How many results the caller of the running function of C wants, -1 for all; -2 if that cannot be told. The interface of Lua does not show it: these
   are a part of lua_State and of CallInfo of Lua 5.1 with pointers of 64 bits, and `knows_wanted` tries whether they lie there. */
enum { STATE_BASE = 24, STATE_FRAME = 40, FRAME_BASE = 0, FRAME_WANTED = 32 };

static int wanted_of(lua_State *L) {
    const char *state = (const char *)L, *frame = *(const char *const *)(state + STATE_FRAME);
    if (sizeof(void *) != 8 || !frame || *(void *const *)(frame + FRAME_BASE) != *(void *const *)(state + STATE_BASE))
        return -2;
    return *(const int *)(frame + FRAME_WANTED);
}

static int tell_wanted(lua_State *L) {
    *(int *)lua.touserdata(L, 1) = wanted_of(L);
    return 0;
}

static int knows_wanted(lua_State *L) {
    int is_known = 1, top = lua.gettop(L);
    for (int wanted = -1; wanted < 4; wanted++) {
        int told = -2;
        lua.pushcclosure(L, tell_wanted, 0);
        lua.pushlightuserdata(L, &told);
        lua.call(L, 1, wanted);
        lua.settop(L, top);
        is_known &= told == wanted;
    }
    return is_known;
}

/* How deep functions of C lie on one another in a thread of Lua, which ends a script at 200: those that a server has not are not to be counted. That too is
   a part of lua_State, and `knows_depth` tries whether it lies there. An error that jumps out puts back what its catcher found. */
enum { STATE_DEPTH = 96 };
static int is_depth_known;

static unsigned short *depth_of(lua_State *L) {
    return (unsigned short *)((char *)L + STATE_DEPTH);
}

static int tell_depth(lua_State *L) {
    *(int *)lua.touserdata(L, 1) = *depth_of(L);
    return 0;
}

static int pass_on(lua_State *L) {
    lua.pushcclosure(L, tell_depth, 0);
    lua.insert(L, 1);
    lua.call(L, 1, 0);
    return 0;
}

static int knows_depth(lua_State *L) {
    int told[2] = {-2, -2}, depth = *depth_of(L);
    for (int i = 0; i < 2; i++) {
        lua.pushcclosure(L, i ? pass_on : tell_depth, 0);
        lua.pushlightuserdata(L, &told[i]);
        lua.call(L, 1, 0);
    }
    return sizeof(void *) == 8 && told[0] == depth + 1 && told[1] == depth + 2 && *depth_of(L) == depth;
}

/* lua_call of what is no function more than the one that calls it. */
static void call_as_one(lua_State *L, int arguments, int results) {
    unsigned short *depth = depth_of(L), fewer = is_depth_known && *depth > 0;
    *depth -= fewer;
    lua.call(L, arguments, results);
    *depth += fewer;
}

/* run(f, handler): as xpcall, for a script: it begins where one begins on a server, whoever runs it. */
static int run_script(lua_State *L) {
    lua.settop(L, 2);
    lua.insert(L, 1);
    unsigned short *depth = depth_of(L), before = *depth;
    if (is_depth_known)
        *depth = 0;
    int status = lua.pcall(L, 0, -1, 1);
    if (is_depth_known)
        *depth = before;
    lua.pushboolean(L, !status);
    lua.replace(L, 1);
    return lua.gettop(L);
}

/* What the functions of one Lua state share. LuaEngine holds Python's objects, for a reference from here would keep it for ever. */
typedef struct {
    lua_State *main;
    PyObject *perform, *slot;
    PyObject *answer, *refuse, *note_write, *note_line, *spend, *ok, *lua_error;
    Py_ssize_t call_bytes, budget_max;
    int memory_kilobytes_max;
    int is_recording, knows_wanted;
    /* of the run that `run` or `call_script` carries out: */
    int is_running, resp, may_write, has_written, is_write_noted, is_budget_known, was_settled;
    long long time_us, units;
    PyObject *node;
    Py_ssize_t spent, budget;
} FastPath;

/* Arguments ------------------------------------------------------------------------------------------------------ */

static PyObject *text_of(const char *place, size_t length) {
    if (length > KEPT_BYTES_MAX)
        return PyBytes_FromStringAndSize(place, (Py_ssize_t)length);
    Kept *found = &kept[slot_of(place)];
    if (found->place == place && (size_t)PyBytes_GET_SIZE(found->text) == length && !memcmp(PyBytes_AS_STRING(found->text), place, length))
        return Py_NewRef(found->text);
    PyObject *made = PyBytes_FromStringAndSize(place, (Py_ssize_t)length), *before = found->text;
    if (made) {
        found->place = place;
        found->text = Py_NewRef(made);
        Py_XDECREF(before);
    }
    return made;
}

/* Whether the arguments are worth a tuple. */
static int are_plain(lua_State *L, int count) {
    size_t size = 0;
    if (count < 1 || count > ARGUMENTS_MAX)
        return 0;
    for (int i = 1; i <= count; i++) {
        int kind = lua.type(L, i);
        if (kind == STRING)
            size += lua.objlen(L, i);
        else if (kind != NUMBER)
            return 0;
        if (size > ARGUMENT_BYTES_MAX)
            return 0;
    }
    return 1;
}

/* A number as "%.17g" writes it. */
static PyObject *number_text(double number) {
    char text[NUMBER_BYTES_MAX], *end = text + sizeof text;
    if (fabs(number) < 1e15 && number == (double)(long long)number && (number != 0 || !signbit(number))) {
        char *begin = write_whole(end, (long long)number);
        return PyBytes_FromStringAndSize(begin, end - begin);
    }
    int length = snprintf(text, sizeof text, "%.17g", number);
    return PyBytes_FromStringAndSize(text, length);
}

static PyObject *argument(lua_State *L, int place) {
    if (lua.type(L, place) == NUMBER)
        return number_text(lua.tonumber(L, place));
    size_t length;
    const char *text = lua.tolstring(L, place, &length);
    return text_of(text, length);
}

/* What function((argument, ...), bytes of all) returns, or NULL with an exception. */
static PyObject *call_python(FastPath *fast, lua_State *L, int count) {
    Py_ssize_t size = 0;
    PyObject *result = NULL, *arguments[3] = {NULL, PyTuple_New(count), NULL};
    if (!arguments[1])
        return NULL;
    for (int i = 0; i < count; i++) {
        PyObject *made = argument(L, i + 1);
        if (!made)
            goto end;
        size += PyBytes_GET_SIZE(made);
        PyTuple_SET_ITEM(arguments[1], i, made);
    }
    arguments[2] = PyLong_FromSsize_t(size);
    if (arguments[2])
        result = PyObject_Vectorcall(fast->perform, arguments + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
end:
    Py_DECREF(arguments[1]);
    Py_XDECREF(arguments[2]);
    return result;
}

/* The exception that was raised. */
static PyObject *take_exception(void) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback)
        PyException_SetTraceback(value, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
}

/* Results -------------------------------------------------------------------------------------------------------- */

static int is_plain(PyObject *item) {
    int overflow = 0;
    if (PyLong_CheckExact(item))
        (void)PyLong_AsLongLongAndOverflow(item, &overflow);
    else if (item != Py_None && !PyBool_Check(item) && !PyBytes_CheckExact(item) && !PyFloat_CheckExact(item))
        return 0;
    return !overflow;
}

static int is_plain_tuple(PyObject *items) {
    Py_ssize_t count = PyTuple_GET_SIZE(items);
    if (count == 0 || (PyTuple_GET_ITEM(items, 0) != Py_True && count > RESULTS_MAX))
        return 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (!is_plain(PyTuple_GET_ITEM(items, i)))
            return 0;
    return 1;
}


static PyObject *call1(PyObject *function, PyObject *argument) {
    PyObject *arguments[2] = {NULL, argument};
    return PyObject_Vectorcall(function, arguments + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
}

/* Runs ------------------------------------------------------------------------------------------------------------- */

static Command *place_of(const char *name, size_t length) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    for (uint32_t at = hash;; at++) {
        Command *command = &commands[at % COMMANDS];
        if (!command->handler || (command->length == length && !memcmp(command->name, name, length)))
            return command;
    }
}

/* The command of that name, or NULL. */
static Command *command_of(const char *name, size_t length) {
    if (length > NAME_BYTES_MAX)
        return NULL;
    size_t slot = slot_of(name);
    Command *command = found_before[slot].command;
    if (found_before[slot].place == name && command->length == length && !memcmp(command->name, name, length))
        return command;
    command = place_of(name, length);
    if (!command->handler)
        return NULL;
    found_before[slot].place = name;
    found_before[slot].command = command;
    return command;
}

/* Tells LuaEngine what the calls have taken since it was told last, and what is left. 0 with an exception. */
static int settle(FastPath *fast) {
    PyObject *spent = PyLong_FromSsize_t(fast->spent);
    PyObject *left = spent ? call1(fast->spend, spent) : NULL;
    Py_XDECREF(spent);
    if (!left)
        return 0;
    fast->spent = 0;
    fast->budget = PyLong_AsSsize_t(left);
    fast->is_budget_known = fast->was_settled = 1;
    Py_DECREF(left);
    return fast->budget != -1 || !PyErr_Occurred();
}

/* Notes a write unless that has been done; 0 where something may refuse it, or with an exception. */
static int note_write(FastPath *fast) {
    PyObject *noted = PyObject_CallNoArgs(fast->note_write);
    if (!noted)
        return 0;
    fast->has_written = fast->is_write_noted = noted == Py_True;
    Py_DECREF(noted);
    return fast->has_written;
}

/* Before anything else may ask what is left or take of it, or whether the script has written. */
static int leave_fast_path(FastPath *fast) {
    if (!fast->is_running)
        return 1;
    if (fast->has_written && !fast->is_write_noted && !note_write(fast) && PyErr_Occurred())
        return 0;
    int settled = settle(fast);
    fast->is_budget_known = fast->may_write = 0;
    return settled;
}

/* What the command gives for a call that needs no closer look, or NULL: with an exception, or because it needs one. */
static PyObject *call_command(FastPath *fast, lua_State *L, int count) {
    size_t length, bytes = 0;
    if (count < 1 || count > SHORT_ARGUMENTS_MAX || lua.type(L, 1) != STRING)
        return NULL;
    const char *name = lua.tolstring(L, 1, &length);
    Command *command = command_of(name, length);
    if (!command || count < command->least || count > command->most || lua.gc(L, GC_COUNT, 0) >= fast->memory_kilobytes_max)
        return NULL;
    if (!fast->is_budget_known && !settle(fast))
        return NULL;
    PyObject *given[SHORT_ARGUMENTS_MAX + 1], **words = given + 1, *result = NULL; /* a place before them for what is called, and the node */
    Py_ssize_t size = PyBytes_GET_SIZE(command->text) + (count > FEW_ARGUMENTS ? (count - FEW_ARGUMENTS) * EXTRA_ARGUMENT_BYTES : 0);
    int made_count = 1;
    for (int i = 1; i < count; i++) {
        PyObject *made;
        int kind = lua.type(L, i + 1);
        if (kind == STRING) {
            const char *text = lua.tolstring(L, i + 1, &length);
            bytes += length;
            if (bytes > ARGUMENT_BYTES_MAX)
                goto end;
            made = text_of(text, length);
        } else if (kind == NUMBER)
            made = number_text(lua.tonumber(L, i + 1));
        else
            goto end;
        if (!made)
            goto end;
        size += PyBytes_GET_SIZE(made);
        words[made_count++] = made;
    }
    if (size + fast->call_bytes > fast->budget)
        goto end;
    if (command->is_write && !fast->has_written) {
        if (fast->may_write)
            fast->has_written = 1;
        else if (!note_write(fast))
            goto end;
    }
    fast->spent += size + fast->call_bytes;
    fast->budget -= size + fast->call_bytes;
    if (count <= SHORT_WORDS_MAX && command->short_ways[count]) {
        words[0] = fast->node;
        result = PyObject_Vectorcall(command->short_ways[count], words, (size_t)count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    }
    if (result == Py_NotImplemented || (!result && !PyErr_Occurred())) {
        Py_XDECREF(result);
        PyObject *argv = PyTuple_New(count), *arguments[3] = {NULL, fast->node, argv};
        if (argv) {
            PyTuple_SET_ITEM(argv, 0, Py_NewRef(command->text));
            for (int i = 1; i < count; i++)
                PyTuple_SET_ITEM(argv, i, words[i]);
            made_count = 1;
        }
        result = argv ? PyObject_Vectorcall(command->handler, arguments + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL) : NULL;
        Py_XDECREF(argv);
    }
    if (!result) {
        PyObject *error = take_exception();
        result = error ? call1(fast->refuse, error) : NULL;
        Py_XDECREF(error);
    } else if (PyLong_CheckExact(result)) {
    } else if (result == fast->ok) {
        Py_SETREF(result, Py_NewRef(Py_None));
    } else if (result == Py_None && fast->resp == 2) {
        Py_SETREF(result, Py_NewRef(Py_False));
    } else if (PyList_CheckExact(result) && PyList_GET_SIZE(result) == 0) {
        Py_SETREF(result, Py_NewRef(Py_True));
    } else if (!PyBytes_CheckExact(result) || PyBytes_GET_SIZE(result) > SHORT_REPLY_MAX) {
        Py_SETREF(result, call1(fast->answer, result));
    }
end:
    while (--made_count > 0)
        Py_DECREF(words[made_count]);
    return result;
}

/* The line of the script that calls, for LuaEngine. 0 with an exception. */
static int note_line(FastPath *fast, lua_State *L) {
    lua_Debug place = {.currentline = -1};
    if (lua.getstack(L, 1, &place))
        lua.getinfo(L, "l", &place);
    PyObject *line = PyLong_FromLong(place.currentline);
    PyObject *noted = line ? call1(fast->note_line, line) : NULL;
    Py_XDECREF(line);
    Py_XDECREF(noted);
    return noted != NULL;
}

/* Calls ------------------------------------------------------------------------------------------------------------ */

/* From here on without the lock of the interpreter: what is plain cannot change, and the slot keeps it. */
static void push(lua_State *L, PyObject *item) {
    if (PyBytes_CheckExact(item))
        lua.pushlstring(L, PyBytes_AS_STRING(item), (size_t)PyBytes_GET_SIZE(item));
    else if (PyFloat_CheckExact(item))
        lua.pushnumber(L, PyFloat_AS_DOUBLE(item));
    else if (item == Py_None)
        lua.pushnil(L);
    else if (PyBool_Check(item))
        lua.pushboolean(L, item == Py_True);
    else
        lua.pushnumber(L, (double)PyLong_AsLongLong(item));
}

/* True and items: a table of these. */
static int push_array(lua_State *L, PyObject **items, int count) {
    lua.createtable(L, count, 0);
    for (int i = 1; i <= count; i++) {
        push(L, items[i]);
        lua.rawseti(L, -2, i);
    }
    return 1;
}

static int push_status_ok(lua_State *L) {
    lua.createtable(L, 0, 1);
    lua.pushlstring(L, "ok", 2);
    lua.pushlstring(L, "OK", 2);
    lua.rawset(L, -3);
    return 1;
}

/* TIME as the server replies. */
static int push_time(lua_State *L, long long time_us) {
    char text[NUMBER_BYTES_MAX], *end = text + sizeof text;
    lua.createtable(L, 2, 0);
    for (int i = 1; i <= 2; i++) {
        char *begin = write_whole(end, i == 1 ? time_us / 1000000 : time_us % 1000000);
        lua.pushlstring(L, begin, (size_t)(end - begin));
        lua.rawseti(L, -2, i);
    }
    return 1;
}

/* Hands what is on the stack from `first` on to the function of redis.lua for all that is not done here. */
static int otherwise(lua_State *L, const char *word, int first) {
    lua.pushvalue(L, OTHERWISE);
    lua.pushlstring(L, word, strlen(word));
    lua.insert(L, first);
    lua.insert(L, first);
    call_as_one(L, lua.gettop(L) - first, 1);
    return 1;
}

static int is_time(lua_State *L) {
    size_t length;
    if (lua.type(L, 1) != STRING)
        return 0;
    const char *name = lua.tolstring(L, 1, &length);
    return length == 4 && !memcmp(name, "TIME", 4);
}

/* redis.call, or redis.pcall, of one Lua state. */
static int call(lua_State *L) {
    FastPath *fast = lua.touserdata(L, FAST_PATH);
    int count = lua.gettop(L), is_all_plain = 0, is_fast = fast->is_running && L == fast->main;
    PyObject *result = NULL;
    if (count == 1 && is_time(L) && !fast->is_recording) {
        if (is_fast && fast->time_us >= 0)
            return push_time(L, fast->time_us);
        if (!is_fast)
            return otherwise(L, "time", 1);
    }
    PyGILState_STATE lock = PyGILState_UNLOCKED;
    if (!is_fast)
        lock = PyGILState_Ensure();
    else
        result = call_command(fast, L, count);
    if (!result) {
        if (PyErr_Occurred() || (fast->is_recording && !note_line(fast, L)) || !leave_fast_path(fast))
            result = take_exception();
        else if (are_plain(L, count) && L == fast->main) {
            result = call_python(fast, L, count);
            if (!result)
                result = take_exception();
            else
                is_all_plain = PyTuple_CheckExact(result) ? is_plain_tuple(result) : is_plain(result);
        }
    } else
        is_all_plain = PyTuple_CheckExact(result) ? is_plain_tuple(result) : is_plain(result);
    if (result)
        PyList_SetItem(fast->slot, 0, result);
    if (!is_fast)
        PyGILState_Release(lock);
    if (!result)
        return otherwise(L, "slow", 1);
    if (is_all_plain && fast->knows_wanted && !PyTuple_CheckExact(result) && wanted_of(L) == 0)
        return 0; /* a call that stands alone */
    lua.settop(L, 0);
    if (!is_all_plain)
        return otherwise(L, "take", 1);
    if (result == Py_None)
        return push_status_ok(L);
    if (result == Py_True)
        return push_array(L, &result, 0);
    if (!PyTuple_CheckExact(result)) {
        push(L, result);
        return 1;
    }
    PyObject **items = ((PyTupleObject *)result)->ob_item;
    int results = (int)PyTuple_GET_SIZE(result);
    if (items[0] == Py_True)
        return push_array(L, items, results - 1);
    for (int i = 0; i < results; i++)
        push(L, items[i]);
    if (items[0] != Py_None)
        return results;
    lua.remove(L, 1); /* nil, and the name of a case with its values */
    lua.pushvalue(L, OTHERWISE);
    lua.insert(L, 1);
    call_as_one(L, results - 1, 1);
    return 1;
}

/* Scripts ---------------------------------------------------------------------------------------------------------- */

typedef struct {
    FastPath *fast;
    long number;
    Py_ssize_t key_count, count;
    PyObject **values, *result;
} Job;

/* What stands in the registry for a fast path: the table of globals, the function that runs a script, all scripts by their numbers, and two names. */
enum { GLOBALS = 1, RUNNER = 2, SCRIPTS = 3, KEYS = 4, ARGV = 5 };

static void push_list(lua_State *L, int name, PyObject **values, Py_ssize_t count) {
    lua.rawgeti(L, 1, name);
    lua.createtable(L, (int)count, 0);
    for (Py_ssize_t i = 0; i < count; i++) {
        push(L, values[i]);
        lua.rawseti(L, -2, (int)i + 1);
    }
    lua.rawset(L, -3);
}

static PyObject *result_of(lua_State *L, int place) {
    size_t length;
    switch (lua.type(L, place)) {
    case NIL:
        return Py_NewRef(Py_None);
    case BOOLEAN:
        return PyBool_FromLong(lua.toboolean(L, place));
    case NUMBER: {
        double number = lua.tonumber(L, place);
        if (number >= -9223372036854775808.0 && number < 9223372036854775808.0 && number == (double)(long long)number)
            return PyLong_FromLongLong((long long)number);
        return PyFloat_FromDouble(number);
    }
    case STRING: {
        const char *text = lua.tolstring(L, place, &length);
        return PyBytes_FromStringAndSize(text, (Py_ssize_t)length);
    }
    }
    PyErr_SetString(PyExc_SystemError, "run.lua has returned what is no reply");
    return NULL;
}

/* What run.lua returns as LuaEngine._result takes it; an array of strings and whole numbers as the list that it makes of it. */
static PyObject *results_of(lua_State *L, int first) {
    int count = lua.gettop(L) - first + 1, is_array = count > 0 && lua.type(L, first) == BOOLEAN && lua.toboolean(L, first), is_whole = is_array;
    if (count == 1 && !is_array)
        return result_of(L, first);
    if (count == 1)
        return PyList_New(0);
    PyObject *items = PyTuple_New(count);
    for (int i = 0; items && i < count; i++) {
        PyObject *item = result_of(L, first + i);
        if (!item)
            Py_CLEAR(items);
        else {
            is_whole &= !PyFloat_CheckExact(item);
            PyTuple_SET_ITEM(items, i, item);
        }
    }
    if (!items || !is_whole)
        return items;
    PyObject *list = PyList_New(count - 1);
    for (int i = 1; list && i < count; i++)
        PyList_SET_ITEM(list, i - 1, Py_NewRef(PyTuple_GET_ITEM(items, i)));
    Py_DECREF(items);
    return list;
}

/* In protected mode, as memory may be full. */
static int set_arguments(lua_State *L) {
    Job *job = lua.touserdata(L, 1);
    lua.settop(L, 0);
    lua.pushlightuserdata(L, job->fast);
    lua.rawget(L, REGISTRY);
    lua.rawgeti(L, 1, GLOBALS);
    push_list(L, KEYS, job->values, job->key_count);
    push_list(L, ARGV, job->values + job->key_count, job->count - job->key_count);
    return 0;
}

/* Runs the script; what went wrong, if anything did. As few calls of C deep as lupa does, for Lua counts them. */
static int carry_out(lua_State *L, Job *job) {
    int top = lua.gettop(L), status = lua.checkstack(L, 8) ? lua.cpcall(L, set_arguments, job) : -1;
    if (status)
        return status;
    lua.pushlightuserdata(L, job->fast);
    lua.rawget(L, REGISTRY);
    lua.rawgeti(L, -1, RUNNER);
    lua.rawgeti(L, -2, SCRIPTS);
    lua.rawgeti(L, -1, (int)job->number);
    lua.remove(L, -2);
    if (job->fast->time_us >= 0)
        lua.pushnumber(L, (double)job->fast->time_us);
    else
        lua.pushnil(L);
    status = lua.pcall(L, 2, -1, 0);
    if (!status)
        job->result = results_of(L, top + 2);
    return status;
}

static FastPath *fast_path_of(PyObject *capsule) {
    return PyCapsule_GetPointer(capsule, NULL);
}

/* Runs the job for a node; what _result of LuaEngine takes, or NotImplemented if lupa has to run it. NULL with an exception. `is_calm`: nothing
   can refuse its writes. What the calls have taken is added up for take_units where `is_one_of_many`, else LuaEngine is told. */
static PyObject *run_job(FastPath *fast, Job *job, PyObject *node, long long time_us, int is_calm, int is_one_of_many) {
    Py_ssize_t size = 0;
    for (Py_ssize_t i = 0; i < job->count; i++)
        size += PyBytes_CheckExact(job->values[i]) ? PyBytes_GET_SIZE(job->values[i]) : VALUE_BYTES_MAX + 1;
    const char *numbers = setlocale(LC_NUMERIC, NULL);
    if (size > VALUE_BYTES_MAX || job->key_count < 0 || job->key_count > job->count || fast->is_running || fast->is_recording || !fast->answer
        || !numbers || numbers[0] != 'C' || numbers[1] || lua.gc(fast->main, GC_COUNT, 0) >= fast->memory_kilobytes_max)
        Py_RETURN_NOTIMPLEMENTED;
    fast->node = node;
    fast->time_us = time_us;
    fast->spent = fast->has_written = fast->is_write_noted = fast->was_settled = 0;
    fast->budget = fast->budget_max;
    fast->is_budget_known = 1;
    fast->may_write = is_calm;
    fast->resp = 2;
    fast->is_running = 1;
    int top = lua.gettop(fast->main), status = carry_out(fast->main, job);
    fast->is_running = 0;
    fast->node = NULL;
    if (status) {
        size_t length = 0;
        const char *text = lua.gettop(fast->main) > top && lua.type(fast->main, -1) == STRING ? lua.tolstring(fast->main, -1, &length) : NULL;
        PyObject *message = PyUnicode_DecodeLatin1(text ? text : "", (Py_ssize_t)length, NULL);
        Py_CLEAR(job->result);
        if (message)
            PyErr_SetObject(fast->lua_error, message);
        Py_XDECREF(message);
    }
    lua.settop(fast->main, top);
    if (is_one_of_many && !fast->was_settled)
        fast->units += fast->spent / fast->call_bytes;
    else if (fast->spent) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        if (!settle(fast)) {
            Py_CLEAR(job->result);
            Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(traceback);
        } else
            PyErr_Restore(type, value, traceback);
    }
    return job->result;
}

/* run(node, number, time_us, key_count, values, is_calm): as run_job. time_us is -1 where TIME is a command like any other. */
static PyObject *run(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    FastPath *fast = fast_path_of(self);
    if (!fast || count != 6)
        return PyErr_BadArgument(), NULL;
    PyObject *values = arguments[4];
    Job job = {fast, PyLong_AsLong(arguments[1]), PyLong_AsSsize_t(arguments[3]), 0, NULL, NULL};
    long long time_us = PyLong_AsLongLong(arguments[2]);
    if (PyErr_Occurred())
        return NULL;
    if (!PyList_CheckExact(values) && !PyTuple_CheckExact(values))
        Py_RETURN_NOTIMPLEMENTED;
    job.values = PySequence_Fast_ITEMS(values);
    job.count = PySequence_Fast_GET_SIZE(values);
    return run_job(fast, &job, arguments[0], time_us, arguments[5] == Py_True, 0);
}

/* call_script(node, argv, numbers, time_us): the same for a line EVALSHA sha number-of-keys ..., while nothing can refuse its writes.
   NotImplemented for all other lines too, and for scripts whose number is not in `numbers`. */
static PyObject *call_script(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    FastPath *fast = fast_path_of(self);
    if (!fast || count != 4 || !PyDict_CheckExact(arguments[2]))
        return PyErr_BadArgument(), NULL;
    PyObject *argv = arguments[1];
    Py_ssize_t size = PyTuple_CheckExact(argv) || PyList_CheckExact(argv) ? PySequence_Fast_GET_SIZE(argv) : 0;
    if (size < 3)
        Py_RETURN_NOTIMPLEMENTED;
    PyObject **items = PySequence_Fast_ITEMS(argv), *name = items[0], *keys = items[2];
    if (!PyBytes_CheckExact(name) || !PyBytes_CheckExact(items[1]) || !PyBytes_CheckExact(keys) || PyBytes_GET_SIZE(keys) != 1
        || PyBytes_GET_SIZE(name) != 7 || memcmp(PyBytes_AS_STRING(name), "EVALSHA", 7))
        Py_RETURN_NOTIMPLEMENTED;
    int key_count = PyBytes_AS_STRING(keys)[0] - '0';
    PyObject *number = PyDict_GetItemWithError(arguments[2], items[1]);
    if (!number && PyErr_Occurred())
        return NULL;
    if (!number || key_count < 0 || key_count > 9)
        Py_RETURN_NOTIMPLEMENTED;
    Job job = {fast, PyLong_AsLong(number), key_count, size - 3, items + 3, NULL};
    long long time_us = PyLong_AsLongLong(arguments[3]);
    if (PyErr_Occurred())
        return NULL;
    return run_job(fast, &job, arguments[0], time_us, 1, 1);
}

/* What the calls of scripts that call_script has run have taken, in units of work, since this was asked last. */
static PyObject *take_units(PyObject *self, PyObject *unused) {
    FastPath *fast = fast_path_of(self);
    if (!fast)
        return NULL;
    long long units = fast->units;
    fast->units = 0;
    return PyLong_FromLongLong(units);
}

static PyObject *has_written(PyObject *self, PyObject *unused) {
    FastPath *fast = fast_path_of(self);
    if (!fast)
        return NULL;
    return PyBool_FromLong(fast->is_running && fast->has_written);
}

/* equip(commands, short_ways, call_bytes, argument_bytes_max, memory_bytes_max, answer, refuse, note_write, note_line, spend, ok, lua_error), once. */
static PyObject *equip(PyObject *self, PyObject *arguments) {
    FastPath *fast = fast_path_of(self);
    PyObject *table, *short_ways, *name, *entry;
    Py_ssize_t at = 0, memory_bytes_max;
    if (!fast || !PyArg_ParseTuple(arguments, "O!O!nnnOOOOOOO", &PyDict_Type, &table, &PyDict_Type, &short_ways, &fast->call_bytes, &fast->budget_max, &memory_bytes_max,
                                   &fast->answer, &fast->refuse, &fast->note_write, &fast->note_line, &fast->spend, &fast->ok, &fast->lua_error))
        return NULL;
    fast->memory_kilobytes_max = (int)(memory_bytes_max >> 10);
    while (PyDict_Next(table, &at, &name, &entry)) {
        size_t length = PyBytes_CheckExact(name) ? (size_t)PyBytes_GET_SIZE(name) : COMMANDS;
        if (length > NAME_BYTES_MAX || at > COMMANDS / 2)
            continue; /* goes the other way */
        Command *command = place_of(PyBytes_AS_STRING(name), length), found = {.length = length};
        if (!PyArg_ParseTuple(entry, "Onnp", &found.handler, &found.least, &found.most, &found.is_write))
            return NULL;
        memcpy(found.name, PyBytes_AS_STRING(name), length);
        found.text = Py_NewRef(name);
        Py_INCREF(found.handler);
        PyObject *ways = PyDict_GetItemWithError(short_ways, name), *words, *way;
        Py_ssize_t place = 0;
        while (ways && PyDict_Check(ways) && PyDict_Next(ways, &place, &words, &way)) {
            long count = PyLong_AsLong(words);
            if (count > 0 && count <= SHORT_WORDS_MAX)
                found.short_ways[count] = Py_NewRef(way);
        }
        if (PyErr_Occurred())
            return NULL;
        Py_XDECREF(command->text);
        Py_XDECREF(command->handler);
        for (int i = 0; i <= SHORT_WORDS_MAX; i++)
            Py_XDECREF(command->short_ways[i]);
        *command = found;
    }
    Py_RETURN_NONE;
}

static PyObject *set_recording(PyObject *self, PyObject *is_recording) {
    FastPath *fast = fast_path_of(self);
    if (!fast)
        return NULL;
    fast->is_recording = is_recording == Py_True;
    Py_RETURN_NONE;
}

static PyObject *set_resp(PyObject *self, PyObject *version) {
    FastPath *fast = fast_path_of(self);
    if (!fast)
        return NULL;
    fast->resp = (int)PyLong_AsLong(version);
    Py_RETURN_NONE;
}

static PyMethodDef METHODS[] = {
    {"run", (PyCFunction)(void (*)(void))run, METH_FASTCALL, "Runs a script."},
    {"call_script", (PyCFunction)(void (*)(void))call_script, METH_FASTCALL, "Runs the script that a line calls."},
    {"take_units", take_units, METH_NOARGS, "What such scripts have taken."},
    {"has_written", has_written, METH_NOARGS, "Whether the running script has written."},
    {"equip", equip, METH_VARARGS, "Names the commands and what else is of Python."},
    {"set_recording", set_recording, METH_O, "Whether each call tells its line."},
    {"set_resp", set_resp, METH_O, "The version of the protocol that the running script has chosen."},
};

#include "hook.h"
#include "patterns.h"

/* Memory ----------------------------------------------------------------------------------------------------------- */

/* What a script allocates is small and short-lived. Blocks up to SMALL_MAX bytes come from chunks of a state's own and go back to lists by
   size; all else, and what was allocated before, is lupa's. Every byte is counted where lupa counts, against its limit. */
enum { SMALL_MAX = 256, STEP = 16, CHUNK_BITS = 20, ADDRESS_BITS = 47, CHUNKS_MAX = 256 };

typedef struct {
    size_t used, base, limit; /* of lupa: limit 0 is none */
} Account;

typedef struct Block {
    struct Block *next;
} Block;

typedef struct {
    lua_Alloc inner;
    Account *account;
    void *main;
    Block *free[SMALL_MAX / STEP + 1];
    char *fresh, *end;
    void *chunks[CHUNKS_MAX];
    int count;
    Counter counter;
} Pool;

static unsigned char is_chunk[1 << (ADDRESS_BITS - CHUNK_BITS - 3)]; /* a bit for each chunk of all states: pages of zeros but for a few */

static int is_pooled(const void *block) {
    uintptr_t chunk = (uintptr_t)block >> CHUNK_BITS;
    return chunk >> (ADDRESS_BITS - CHUNK_BITS) == 0 && (__atomic_load_n(&is_chunk[chunk >> 3], __ATOMIC_RELAXED) >> (chunk & 7) & 1);
}

static void mark(const void *block, int is_used) {
    uintptr_t chunk = (uintptr_t)block >> CHUNK_BITS;
    unsigned char bit = (unsigned char)(1 << (chunk & 7));
    if (is_used)
        __atomic_fetch_or(&is_chunk[chunk >> 3], bit, __ATOMIC_RELAXED);
    else
        __atomic_fetch_and(&is_chunk[chunk >> 3], (unsigned char)~bit, __ATOMIC_RELAXED);
}

static void *take(Pool *pool, size_t size) {
    size_t place = (size + STEP - 1) / STEP, rounded = place * STEP;
    Block *found = pool->free[place];
    if (found) {
        pool->free[place] = found->next;
        return found;
    }
    if ((size_t)(pool->end - pool->fresh) < rounded) {
        void *chunk;
        if (pool->count == CHUNKS_MAX || posix_memalign(&chunk, 1 << CHUNK_BITS, 1 << CHUNK_BITS))
            return NULL;
        if ((uintptr_t)chunk >> ADDRESS_BITS) {
            free(chunk);
            return NULL;
        }
        mark(chunk, 1);
        pool->chunks[pool->count++] = chunk;
        pool->fresh = chunk;
        pool->end = pool->fresh + (1 << CHUNK_BITS);
    }
    char *fresh = pool->fresh;
    pool->fresh += rounded;
    return fresh;
}

static void give_back(Pool *pool, void *block, size_t size) {
    Block **list = &pool->free[(size + STEP - 1) / STEP];
    ((Block *)block)->next = *list;
    *list = block;
}

static void close_pool(Pool *pool) {
    while (pool->count--) {
        mark(pool->chunks[pool->count], 0);
        free(pool->chunks[pool->count]);
    }
    free(pool);
}

/* lua_Alloc */
static void *allocate(void *data, void *block, size_t old, size_t size) {
    Pool *pool = data;
    Account *account = pool->account;
    int was_pooled = block && is_pooled(block);
    if (!block)
        old = 0;
    if (!was_pooled && (block || size > SMALL_MAX || size == 0)) {
        int is_last = block == pool->main && size == 0; /* of a state */
        if (size == 0 && old > LONG_TEXT)
            note_freed(&pool->counter, block, old);
        void *result = pool->inner(account, block, old, size);
        if (!block && result)
            note_block(&pool->counter, result, size);
        if (is_last)
            close_pool(pool);
        return result;
    }
    if (size == 0) {
        give_back(pool, block, old);
        account->used -= old;
        return NULL;
    }
    if (account->limit && size > old && account->used + (size - old) >= account->limit)
        return NULL;
    if (size <= SMALL_MAX && block && (size + STEP - 1) / STEP == (old + STEP - 1) / STEP) {
        account->used += size - old;
        return block;
    }
    account->used -= old;
    void *result = size <= SMALL_MAX ? take(pool, size) : NULL;
    if (result)
        account->used += size;
    else
        result = pool->inner(account, NULL, 0, size);
    if (!result)
        account->used += old;
    else if (block) {
        memcpy(result, block, old < size ? old : size);
        give_back(pool, block, old);
    }
    return result;
}

/* Only where lupa counts as it is said above. */
static void open_pool(lua_State *L) {
    void *data;
    lua_Alloc inner = lua.getallocf(L, &data);
    Account *account = data;
    size_t before = account ? account->used : 0;
    if (!account || !account->limit || before < 1000 || before >= account->limit || account->base > before)
        return;
    void *probe = inner(account, NULL, 0, 1000);
    if (!probe)
        return;
    int counts = account->used == before + 1000;
    inner(account, probe, 1000, 0);
    Dl_info here; /* a state that is closed lets go of this library before it frees its last blocks */
    if (!dladdr(is_chunk, &here) || !dlopen(here.dli_fname, RTLD_LAZY | RTLD_NODELETE))
        return;
    Pool *pool = counts && account->used == before ? calloc(1, sizeof *pool) : NULL;
    if (!pool)
        return;
    pool->inner = inner;
    pool->account = account;
    pool->main = L;
    pool->counter.main = pool->counter.running = L;
    pool->counter.used = &account->used;
    lua.setallocf(L, allocate, pool);
}

/* That of the state, or NULL where it has no pool. */
static Counter *counter_of(lua_State *L) {
    void *pool;
    return lua.getallocf(L, &pool) == allocate ? &((Pool *)pool)->counter : NULL;
}

/* make(otherwise): redis.call with a function for what it does not do itself. It keeps what the fast path needs of lupa's. */
static int make(lua_State *L) {
    lua.settop(L, 1);
    lua.pushvalue(L, FAST_PATH);
    lua.insert(L, 1);
    lua.pushvalue(L, UPVALUE(2));
    lua.pushvalue(L, UPVALUE(3));
    lua.pushcclosure(L, call, 4);
    return 1;
}

/* keep(globals, runner, scripts): what `run` needs. */
static int keep(lua_State *L) {
    lua.settop(L, 3);
    lua.createtable(L, 5, 0);
    for (int place = GLOBALS; place <= SCRIPTS; place++) {
        lua.pushvalue(L, place);
        lua.rawseti(L, 4, place);
    }
    lua.pushlstring(L, "KEYS", 4);
    lua.rawseti(L, 4, KEYS);
    lua.pushlstring(L, "ARGV", 4);
    lua.rawseti(L, 4, ARGV);
    lua.pushlightuserdata(L, lua.touserdata(L, FAST_PATH));
    lua.pushvalue(L, 4);
    lua.rawset(L, REGISTRY);
    return 0;
}

/* Counted functions ------------------------------------------------------------------------------------------------ */

/* gate(f, counted, least, charge, first): f itself, a function of C without upvalues. With at least so many arguments, and one of them from the first on
   long, or many, counted is called instead; a long result of f is charged, if there is a charge. */
enum { GATED_BYTES = 64, GATED_ARGUMENTS = 64 };

static int gated(lua_State *L) {
    int count = lua.gettop(L), is_measured = count >= (int)lua.tonumber(L, UPVALUE(3));
    for (int place = (int)lua.tonumber(L, UPVALUE(5)); is_measured && place <= count; place++) {
        if (count <= GATED_ARGUMENTS && (lua.type(L, place) != STRING || lua.objlen(L, place) <= GATED_BYTES))
            continue;
        lua.pushvalue(L, UPVALUE(2));
        lua.insert(L, 1);
        call_as_one(L, count, -1);
        return lua.gettop(L);
    }
    int results = lua.tocfunction(L, UPVALUE(1))(L);
    if (results == 1 && lua.type(L, UPVALUE(4)) != NIL && lua.objlen(L, -1) > GATED_BYTES) {
        lua.pushvalue(L, UPVALUE(4));
        lua.pushnumber(L, (double)lua.objlen(L, -2));
        call_as_one(L, 1, 0);
    }
    return results;
}

static int gate(lua_State *L) {
    lua.settop(L, 5);
    lua.pushcclosure(L, gated, 5);
    return 1;
}

/* walker(next, charge): next, which charges what it passes by in a large table: all places at the beginning of a walk, and at each call that does not
   go on with the last walk through a large table. */
enum { FEW_PLACES = 1000, PLACES_PER_STEP = 8 };

typedef struct {
    const void *table, *place;
    double number;
    int kind;
} Walk;

static void note_key(lua_State *L, int at, Walk *walk) {
    walk->kind = lua.type(L, at);
    walk->number = walk->kind == NUMBER ? lua.tonumber(L, at) : 0;
    walk->place = walk->kind == STRING ? (const void *)lua.tolstring(L, at, NULL) : walk->kind == NUMBER ? NULL : lua.topointer(L, at);
    if (walk->kind == BOOLEAN)
        walk->number = lua.toboolean(L, at);
}

static int walk_on(lua_State *L) {
    size_t capacity = lua.type(L, 1) == TABLE ? capacity_of(L, 1) : 0;
    if (capacity <= FEW_PLACES)
        return lua.tocfunction(L, UPVALUE(1))(L);
    Walk *last = lua.touserdata(L, UPVALUE(3)), asked = {.table = lua.topointer(L, 1)};
    lua.settop(L, 2);
    note_key(L, 2, &asked);
    if (asked.kind == NIL || asked.table != last->table || asked.kind != last->kind || asked.place != last->place || asked.number != last->number) {
        lua.pushvalue(L, UPVALUE(2));
        lua.pushnumber(L, (double)(capacity / PLACES_PER_STEP));
        call_as_one(L, 1, 0);
    }
    int results = lua.tocfunction(L, UPVALUE(1))(L);
    if (results == 2) {
        note_key(L, -2, last);
        last->table = asked.table;
    }
    return results;
}

static int walker(lua_State *L) {
    lua.settop(L, 2);
    memset(lua.newuserdata(L, sizeof(Walk)), 0, sizeof(Walk));
    lua.pushcclosure(L, walk_on, 3);
    return 1;
}

/* open(function, its address, slot, its address): `make`, `keep`, `gate`, `run`, `walker`, `count_pattern` and `open_count`; the slot has the functions of METHODS then. Nothing where they cannot
   be had. Calls that come from another thread of Lua than the one that opens it go through lupa. Python's function and its list with one
   item live as long as what lupa has made of them, hence the upvalues. The functions of METHODS are for who holds the Lua state. */
int orderlab_call(lua_State *L) {
    if (!find_interface(__builtin_return_address(0)))
        return 0;
    open_pool(L);
    void *function = (void *)(size_t)lua.tonumber(L, 2), *slot = (void *)(size_t)lua.tonumber(L, 4);
    lua.settop(L, 4);
    FastPath *fast = lua.newuserdata(L, sizeof *fast);
    memset(fast, 0, sizeof *fast);
    fast->main = L;
    fast->knows_wanted = knows_wanted(L);
    is_depth_known = knows_depth(L);
    fast->perform = function;
    fast->slot = slot;
    PyGILState_STATE lock = PyGILState_Ensure();
    PyObject *capsule = PyCapsule_New(fast, NULL, NULL), *methods = capsule ? PyTuple_New(sizeof METHODS / sizeof *METHODS) : NULL;
    for (size_t i = 0; methods && i < sizeof METHODS / sizeof *METHODS; i++) {
        PyObject *method = PyCFunction_New(&METHODS[i], capsule);
        if (!method)
            Py_CLEAR(methods);
        else
            PyTuple_SET_ITEM(methods, (Py_ssize_t)i, method);
    }
    Py_XDECREF(capsule);
    if (methods)
        PyList_SetItem(slot, 0, methods);
    else
        PyErr_Clear();
    PyGILState_Release(lock);
    if (!methods)
        return 0;
    lua.pushvalue(L, 5);
    lua.pushvalue(L, 1);
    lua.pushvalue(L, 3);
    lua.pushcclosure(L, make, 3);
    lua.pushvalue(L, 5);
    lua.pushcclosure(L, keep, 1);
    lua.pushcclosure(L, gate, 0);
    lua.pushcclosure(L, run_script, 0);
    if (knows_capacity(L))
        lua.pushcclosure(L, walker, 0);
    else
        lua.pushnil(L);
    lua.pushcclosure(L, count_pattern, 0);
    Counter *counter = counter_of(L);
    if (!counter || !fast->knows_wanted || !knows_registers(L))
        return 6;
    lua.pushlightuserdata(L, counter);
    lua.pushcclosure(L, open_count, 1);
    return 7;
}
