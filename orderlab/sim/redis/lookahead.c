/* The cache lines that a pipeline's look-ups will want, asked for before it runs: in a keyspace of a hundred thousand keys each look-up waits three times for
   memory (the index, the entry, the key), one after the other, and those of different keys can be waited for together. Nothing is read that changes anything. */

#define Py_BUILD_CORE_MODULE 1 /* for how a dictionary lies in memory, of this very Python */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#if PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030e0000 && !defined(Py_GIL_DISABLED) && __has_include(<internal/pycore_dict.h>)
#include <internal/pycore_dict.h>
#define KNOWS_DICTIONARIES 1
#else
#define KNOWS_DICTIONARIES 0
#endif

enum { KEYS_AT_ONCE = 256, KEYS_PER_CALL_MAX = 9, LINE = 64 };

#if KNOWS_DICTIONARIES
static int index_bytes(const PyDictKeysObject *keys) {
    return keys->dk_log2_size < 8 ? 1 : keys->dk_log2_size < 16 ? 2 : keys->dk_log2_size < 32 ? 4 : 8;
}

static Py_ssize_t index_at(const PyDictKeysObject *keys, size_t slot) {
    switch (index_bytes(keys)) {
    case 1: return ((const int8_t *)keys->dk_indices)[slot];
    case 2: return ((const int16_t *)keys->dk_indices)[slot];
    case 4: return ((const int32_t *)keys->dk_indices)[slot];
    default: return (Py_ssize_t)((const int64_t *)keys->dk_indices)[slot];
    }
}

/* Ask for the entries of `count` keys, whose places in the index are here, then for what they hold. */
static void ask_for(PyDictKeysObject *keys, size_t *slots, int count) {
    PyDictKeyEntry *entries = DK_ENTRIES(keys);
    int held = 0;
    for (int i = 0; i < count; i++) {
        Py_ssize_t entry = index_at(keys, slots[i]);
        if (entry >= 0) { /* of another key perhaps: then its look-up goes on elsewhere, and this was in vain */
            __builtin_prefetch(&entries[entry]);
            slots[held++] = (size_t)entry;
        }
    }
    for (int i = 0; i < held; i++) {
        const char *key = (const char *)entries[slots[i]].me_key;
        __builtin_prefetch(key);
        __builtin_prefetch(key + LINE);
        __builtin_prefetch(entries[slots[i]].me_value);
    }
}

/* The number of keys that EVALSHA's third argument tells, 0 where it is none of one digit. */
static Py_ssize_t key_count(PyObject *argument) {
    if (!PyBytes_CheckExact(argument) || PyBytes_GET_SIZE(argument) != 1)
        return 0;
    int count = PyBytes_AS_STRING(argument)[0] - '0';
    return count >= 0 && count <= KEYS_PER_CALL_MAX ? count : 0;
}

static void look(PyDictKeysObject *keys, PyObject *commands) {
    size_t slots[KEYS_AT_ONCE], mask = ((size_t)1 << keys->dk_log2_size) - 1;
    int count = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(commands); i++) {
        PyObject *argv = PyList_GET_ITEM(commands, i);
        if (!PyList_CheckExact(argv) || PyList_GET_SIZE(argv) < 4)
            continue;
        Py_ssize_t last = Py_MIN(key_count(PyList_GET_ITEM(argv, 2)) + 3, PyList_GET_SIZE(argv));
        for (Py_ssize_t j = 3; j < last; j++) {
            PyObject *key = PyList_GET_ITEM(argv, j);
            if (!PyBytes_CheckExact(key))
                continue;
            Py_hash_t hash = PyObject_Hash(key); /* which the key remembers */
            if (count == KEYS_AT_ONCE) {
                ask_for(keys, slots, count);
                count = 0;
            }
            slots[count] = (size_t)hash & mask;
            __builtin_prefetch((const char *)keys->dk_indices + slots[count] * (size_t)index_bytes(keys));
            count++;
        }
    }
    ask_for(keys, slots, count);
}
#endif

/* prefetch(data, commands): `commands` are about to run on a keyspace; those that are lists of EVALSHA, SHA1, number of keys, keys ... count. */
static PyObject *prefetch(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    if (count != 2 || !PyDict_CheckExact(arguments[0]) || !PyList_CheckExact(arguments[1]))
        return PyErr_SetString(PyExc_TypeError, "a dictionary and a list of commands are needed"), NULL;
#if KNOWS_DICTIONARIES
    PyDictObject *data = (PyDictObject *)arguments[0];
    if (data->ma_keys->dk_kind == DICT_KEYS_GENERAL && !data->ma_values)
        look(data->ma_keys, arguments[1]);
#endif
    Py_RETURN_NONE;
}

static PyMethodDef METHODS[] = {{"prefetch", (PyCFunction)(void (*)(void))prefetch, METH_FASTCALL, NULL}, {NULL, NULL, 0, NULL}};
static PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "lookahead", NULL, -1, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_lookahead(void) {
    return PyModule_Create(&MODULE);
}
