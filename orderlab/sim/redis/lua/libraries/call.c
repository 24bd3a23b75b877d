/* redis.call on its way into Python, as lupa goes it and in a third of the time: where all arguments are strings and numbers, and
   what comes back is plain. All else is left to redis.lua and lupa.

   The memory of Lua may be full whenever something is pushed, and the error jumps out of these functions: nothing of Python's is
   held then but what the slot holds, and not the lock of the interpreter either. No limit of time holds in here, so what is long
   is left to lupa as well, in portions. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "lua.h"

#include <math.h>
#include <stdio.h>

enum { ARGUMENTS_MAX = 1000, ARGUMENT_BYTES_MAX = 1 << 20, NUMBER_BYTES_MAX = 32, RESULTS_MAX = 8 };
enum { MAIN = UPVALUE(1), FUNCTION = UPVALUE(2), SLOT = UPVALUE(3) };

/* Arguments ------------------------------------------------------------------------------------------------------ */

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
    char text[NUMBER_BYTES_MAX];
    int length;
    if (fabs(number) < 1e15 && number == (double)(long long)number && (number != 0 || !signbit(number)))
        length = snprintf(text, sizeof text, "%lld", (long long)number);
    else
        length = snprintf(text, sizeof text, "%.17g", number);
    return PyBytes_FromStringAndSize(text, length);
}

static PyObject *argument(lua_State *L, int place) {
    if (lua.type(L, place) == NUMBER)
        return number_text(lua.tonumber(L, place));
    size_t length;
    const char *text = lua.tolstring(L, place, &length);
    return PyBytes_FromStringAndSize(text, (Py_ssize_t)length);
}

/* What function((argument, ...), bytes of all) returns, or NULL with an exception. */
static PyObject *call_python(lua_State *L, int count) {
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
        result = PyObject_Vectorcall(lua.touserdata(L, FUNCTION), arguments + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
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

static int give_up(lua_State *L, const char *word) {
    lua.settop(L, 0);
    lua.pushnil(L);
    lua.pushlstring(L, word, 4);
    return 2;
}

/* The function of one Lua state. Results are those of redis.lua's `receive`, with two differences: arrays are tables; and two
   more cases may follow nil, "slow" if nothing has been done, and "take" if the result, or an exception, waits in the slot. */
static int call(lua_State *L) {
    int count = lua.gettop(L), is_all_plain = 0;
    if (L != lua.touserdata(L, MAIN) || !are_plain(L, count))
        return give_up(L, "slow");
    PyGILState_STATE lock = PyGILState_Ensure();
    PyObject *result = call_python(L, count);
    if (!result)
        result = take_exception();
    else
        is_all_plain = PyTuple_CheckExact(result) ? is_plain_tuple(result) : is_plain(result);
    PyList_SetItem(lua.touserdata(L, SLOT), 0, result);
    PyGILState_Release(lock);
    if (!is_all_plain)
        return give_up(L, "take");
    lua.settop(L, 0);
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
    return results;
}

/* open(function, its address, slot, its address): the function above, for calls from the thread that opens it; nothing where it
   cannot be had. Python's function and its list with one item live as long as what lupa has made of them: upvalues too. */
int orderlab_call(lua_State *L) {
    if (!find_interface(__builtin_return_address(0)))
        return 0;
    void *function = (void *)(size_t)lua.tonumber(L, 2), *slot = (void *)(size_t)lua.tonumber(L, 4);
    lua.settop(L, 4);
    lua.pushlightuserdata(L, L);
    lua.pushlightuserdata(L, function);
    lua.pushlightuserdata(L, slot);
    lua.pushvalue(L, 1);
    lua.pushvalue(L, 3);
    lua.pushcclosure(L, call, 5);
    return 1;
}
