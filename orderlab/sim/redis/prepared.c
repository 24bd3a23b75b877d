/* The arguments of prepared commands, made from columns: what `prepared.py` says in Python, with the same results and errors of the same kind. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdio.h>
#include <string.h>

enum { BYTES = -1, PIECES_USUAL = 32, NUMBER_BYTES_MAX = 32, WIDTH_MAX = 20 };

typedef struct {
    PyObject *text; /* a constant, or NULL: a value */
    Py_ssize_t column;
    int width; /* BYTES, or the least digits of a whole number */
} Piece;

typedef struct {
    Py_ssize_t first, count;
} Argument;

typedef struct {
    Py_ssize_t argument_count, piece_count;
    Argument *arguments;
    Piece *pieces;
} Template;

static void let_go(PyObject *capsule) {
    Template *template = PyCapsule_GetPointer(capsule, NULL);
    for (Py_ssize_t i = 0; i < template->piece_count; i++)
        Py_XDECREF(template->pieces[i].text);
    PyMem_Free(template->arguments);
    PyMem_Free(template->pieces);
    PyMem_Free(template);
}

static int read_piece(Piece *piece, PyObject *given) {
    long width;
    if (PyBytes_CheckExact(given)) {
        piece->text = Py_NewRef(given);
        return 1;
    }
    piece->text = NULL;
    if (!PyTuple_CheckExact(given))
        return PyErr_SetString(PyExc_TypeError, "a piece is bytes or a tuple"), 0;
    if (!PyArg_ParseTuple(given, "nl", &piece->column, &width))
        return 0;
    if (piece->column < 0 || width < BYTES || width > WIDTH_MAX)
        return PyErr_SetString(PyExc_ValueError, "no such piece"), 0;
    piece->width = (int)width;
    return 1;
}

/* prepare(arguments): each a tuple of pieces, constant bytes or (number of the column, least digits or -1 for bytes). */
static PyObject *prepare(PyObject *module, PyObject *given) {
    Py_ssize_t count = 0, at = 0;
    if (!PyTuple_CheckExact(given))
        return PyErr_SetString(PyExc_TypeError, "a tuple of tuples is needed"), NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); i++) {
        PyObject *pieces = PyTuple_GET_ITEM(given, i);
        if (!PyTuple_CheckExact(pieces))
            return PyErr_SetString(PyExc_TypeError, "a tuple of pieces is needed"), NULL;
        count += PyTuple_GET_SIZE(pieces);
    }
    Template *template = PyMem_Calloc(1, sizeof *template);
    PyObject *capsule = template ? PyCapsule_New(template, NULL, let_go) : PyErr_NoMemory();
    if (!capsule)
        return PyMem_Free(template), NULL;
    template->argument_count = PyTuple_GET_SIZE(given);
    template->arguments = PyMem_Calloc((size_t)template->argument_count + 1, sizeof *template->arguments);
    template->pieces = PyMem_Calloc((size_t)count + 1, sizeof *template->pieces);
    int is_read = template->arguments && template->pieces;
    if (!is_read)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; is_read && i < template->argument_count; i++) {
        PyObject *pieces = PyTuple_GET_ITEM(given, i);
        template->arguments[i] = (Argument){at, PyTuple_GET_SIZE(pieces)};
        for (Py_ssize_t j = 0; is_read && j < PyTuple_GET_SIZE(pieces); j++) {
            is_read = read_piece(&template->pieces[at++], PyTuple_GET_ITEM(pieces, j));
            template->piece_count = at;
        }
    }
    if (!is_read)
        Py_CLEAR(capsule);
    return capsule;
}

/* The value of a piece in a row: borrowed. */
static PyObject *value_of(const Piece *piece, PyObject *columns, Py_ssize_t place) {
    if (piece->text)
        return piece->text;
    PyObject *column = piece->column < PyTuple_GET_SIZE(columns) ? PyTuple_GET_ITEM(columns, piece->column) : NULL;
    if (!column || !(PyList_CheckExact(column) || PyTuple_CheckExact(column)))
        return PyErr_SetString(PyExc_TypeError, "a column is a list or a tuple"), NULL;
    if (place < 0 || place >= PySequence_Fast_GET_SIZE(column))
        return PyErr_SetString(PyExc_IndexError, "a column is shorter than that"), NULL;
    return PySequence_Fast_GET_ITEM(column, place);
}

static Py_ssize_t write_number(char *to, PyObject *value, int width) {
    long long number = PyLong_AsLongLong(value);
    if (number == -1 && PyErr_Occurred())
        return -1;
    if (number < 0)
        return snprintf(to, NUMBER_BYTES_MAX, "%0*lld", width, number);
    char digits[NUMBER_BYTES_MAX], *end = digits + sizeof digits, *begin = end;
    do
        *--begin = (char)('0' + number % 10);
    while (number /= 10);
    while (end - begin < width)
        *--begin = '0';
    memcpy(to, begin, (size_t)(end - begin));
    return end - begin;
}

typedef struct {
    const char *text;
    Py_ssize_t length;
    char number[NUMBER_BYTES_MAX];
} Text;

static PyObject *joined(const Piece *pieces, Py_ssize_t count, PyObject *columns, Py_ssize_t place, Text *texts) {
    Py_ssize_t length = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = value_of(&pieces[i], columns, place);
        if (!value)
            return NULL;
        if (pieces[i].text || pieces[i].width == BYTES) {
            if (!PyBytes_Check(value))
                return PyErr_Format(PyExc_TypeError, "bytes are needed, not %s", Py_TYPE(value)->tp_name), NULL;
            if (count == 1)
                return Py_NewRef(value);
            texts[i].text = PyBytes_AS_STRING(value);
            texts[i].length = PyBytes_GET_SIZE(value);
        } else {
            texts[i].text = texts[i].number;
            texts[i].length = write_number(texts[i].number, value, pieces[i].width);
            if (texts[i].length < 0)
                return NULL;
        }
        length += texts[i].length;
    }
    PyObject *made = PyBytes_FromStringAndSize(NULL, length);
    char *to = made ? PyBytes_AS_STRING(made) : NULL;
    for (Py_ssize_t i = 0; made && i < count; i++) {
        memcpy(to, texts[i].text, (size_t)texts[i].length);
        to += texts[i].length;
    }
    return made;
}

static PyObject *argument(const Template *template, const Argument *argument, PyObject *columns, Py_ssize_t place) {
    Text usual[PIECES_USUAL], *texts = argument->count > PIECES_USUAL ? PyMem_Malloc((size_t)argument->count * sizeof *texts) : usual;
    if (!texts)
        return PyErr_NoMemory();
    PyObject *made = joined(template->pieces + argument->first, argument->count, columns, place, texts);
    if (texts != usual)
        PyMem_Free(texts);
    return made;
}

/* render(prepared, places, columns): a list of the arguments of each row. */
static PyObject *render(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    Template *template = count == 3 ? PyCapsule_GetPointer(given[0], NULL) : NULL;
    if (!template || !PyTuple_CheckExact(given[2]))
        return PyErr_Occurred() ? NULL : (PyErr_BadArgument(), NULL);
    PyObject *places = PySequence_Fast(given[1], "places are needed");
    PyObject *rows = places ? PyList_New(PySequence_Fast_GET_SIZE(places)) : NULL;
    for (Py_ssize_t i = 0; rows && i < PyList_GET_SIZE(rows); i++) {
        Py_ssize_t place = PyLong_AsSsize_t(PySequence_Fast_GET_ITEM(places, i));
        PyObject *row = place == -1 && PyErr_Occurred() ? NULL : PyList_New(template->argument_count);
        for (Py_ssize_t j = 0; row && j < template->argument_count; j++) {
            PyObject *made = argument(template, &template->arguments[j], given[2], place);
            if (made)
                PyList_SET_ITEM(row, j, made);
            else
                Py_CLEAR(row);
        }
        if (row)
            PyList_SET_ITEM(rows, i, row);
        else
            Py_CLEAR(rows);
    }
    Py_XDECREF(places);
    return rows;
}

static PyMethodDef METHODS[] = {
    {"prepare", prepare, METH_O, "Reads arguments with places for values."},
    {"render", (PyCFunction)(void (*)(void))render, METH_FASTCALL, "The arguments of commands."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "prepared", NULL, -1, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_prepared(void) {
    return PyModule_Create(&MODULE);
}
