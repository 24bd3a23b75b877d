/* The arguments of prepared commands, made from columns: what `prepared.py` says in Python, with the same results and errors of the same kind. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdio.h>
#include <string.h>

enum { BYTES = -1, PIECES_USUAL = 32, NUMBER_BYTES_MAX = 32, PREFIX_BYTES_MAX = 40, WIDTH_MAX = 20, ENCODED_BYTES_MAX = 96 };

static const char COLUMNS[] = "columns";

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

enum { ITEMS, NUMBERS, NAMES };

typedef struct {
    int kind;
    Py_ssize_t count; /* of numbers; a list is asked itself, for it may have become shorter */
    PyObject *items;  /* of ITEMS, and of NAMES whose numbers are a list; else NULL */
    Py_buffer numbers; /* of others: 64 bits each, `obj` NULL where there is none */
    PyObject *prefix;  /* of NAMES */
    long digits;
    int is_encoded; /* in base64 */
} Column;

static int read_numbers(Column *column, PyObject *given) {
    Py_buffer *numbers = &column->numbers;
    if (PyObject_GetBuffer(given, numbers, PyBUF_STRIDED_RO | PyBUF_FORMAT))
        return 0;
    const char *format = numbers->format ? numbers->format : "B";
    if (numbers->ndim != 1 || numbers->itemsize != 8 || !(strcmp(format, "l") == 0 || strcmp(format, "q") == 0))
        return PyErr_SetString(PyExc_TypeError, "an array of numbers has one dimension, and 64 bits for each"), 0;
    column->count = numbers->shape[0];
    return 1;
}

static int read_items(Column *column, PyObject *given) {
    if (!PyList_CheckExact(given) && !PyTuple_CheckExact(given))
        return 0;
    column->items = Py_NewRef(given);
    return 1;
}

static int read_column(Column *column, PyObject *given) {
    column->numbers.obj = column->prefix = NULL;
    column->items = NULL;
    column->kind = ITEMS;
    if (read_items(column, given))
        return 1;
    if (PyObject_CheckBuffer(given) && !PyBytes_Check(given)) {
        column->kind = NUMBERS;
        return read_numbers(column, given);
    }
    column->kind = NAMES;
    PyObject *numbers = PyObject_GetAttrString(given, "numbers"), *digits = numbers ? PyObject_GetAttrString(given, "digits") : NULL;
    PyObject *is_encoded = digits ? PyObject_GetAttrString(given, "is_encoded") : NULL;
    column->prefix = is_encoded ? PyObject_GetAttrString(given, "prefix") : NULL;
    column->is_encoded = is_encoded == Py_True;
    int is_read = 0;
    if (!column->prefix) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError))
            PyErr_SetString(PyExc_TypeError, "a column is a list, a tuple, an array of numbers, or names with numbers");
    } else {
        column->digits = PyLong_AsLong(digits);
        if (PyErr_Occurred())
            ;
        else if (!PyBytes_Check(column->prefix) || PyBytes_GET_SIZE(column->prefix) > PREFIX_BYTES_MAX || column->digits < 0 || column->digits > WIDTH_MAX)
            PyErr_SetString(PyExc_ValueError, "a prefix of at most 40 bytes is needed, and at most 20 digits");
        else
            is_read = read_items(column, numbers) || read_numbers(column, numbers);
    }
    Py_XDECREF(numbers);
    Py_XDECREF(digits);
    Py_XDECREF(is_encoded);
    return is_read;
}

typedef struct {
    Py_ssize_t count;
    Column columns[];
} Columns;

static void release(Columns *read) {
    for (Py_ssize_t i = 0; i < read->count; i++) {
        PyBuffer_Release(&read->columns[i].numbers); /* nothing where `obj` is NULL */
        Py_XDECREF(read->columns[i].items);
        Py_XDECREF(read->columns[i].prefix);
    }
    PyMem_Free(read);
}

static void let_go_of_columns(PyObject *capsule) {
    release(PyCapsule_GetPointer(capsule, COLUMNS));
}

/* columns(given): a tuple of them, read once for all commands that are made of them. */
static PyObject *read_columns(PyObject *module, PyObject *given) {
    if (!PyTuple_CheckExact(given))
        return PyErr_SetString(PyExc_TypeError, "a tuple of columns is needed"), NULL;
    Columns *read = PyMem_Malloc(sizeof *read + (size_t)PyTuple_GET_SIZE(given) * sizeof(Column));
    if (!read)
        return PyErr_NoMemory();
    int is_read = 1;
    for (read->count = 0; is_read && read->count < PyTuple_GET_SIZE(given); read->count++)
        is_read = read_column(&read->columns[read->count], PyTuple_GET_ITEM(given, read->count));
    PyObject *capsule = is_read ? PyCapsule_New(read, COLUMNS, let_go_of_columns) : NULL;
    if (!capsule)
        release(read);
    return capsule;
}

static long long number_in(const Column *column, Py_ssize_t place) {
    long long number;
    memcpy(&number, (const char *)column->numbers.buf + place * column->numbers.strides[0], sizeof number);
    return number;
}

static Py_ssize_t write_number(char *to, long long number, int width) {
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
    char made[ENCODED_BYTES_MAX];
} Text;

/* `text` in base64. */
static void encode(Text *text) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char plain[PREFIX_BYTES_MAX + NUMBER_BYTES_MAX + 2] = {0};
    char *to = text->made;
    memcpy(plain, text->text, (size_t)text->length);
    for (Py_ssize_t i = 0; i < text->length; i += 3, to += 4) {
        unsigned long three = (unsigned long)plain[i] << 16 | (unsigned long)plain[i + 1] << 8 | plain[i + 2];
        for (int j = 0; j < 4; j++)
            to[j] = i + j > text->length ? '=' : letters[three >> (18 - 6 * j) & 63];
    }
    text->text = text->made;
    text->length = to - text->made;
}

/* What a piece says in a row. Returns an object that says the same, borrowed, `Py_None` where there is none, NULL with an exception. */
static PyObject *say(const Piece *piece, const Column *columns, Py_ssize_t column_count, Py_ssize_t place, Text *text) {
    PyObject *value = piece->text;
    if (!value) {
        const Column *column = piece->column < column_count ? &columns[piece->column] : NULL;
        if (!column)
            return PyErr_SetString(PyExc_TypeError, "there is no such column"), NULL;
        if (place < 0 || place >= (column->items ? PySequence_Fast_GET_SIZE(column->items) : column->count))
            return PyErr_SetString(PyExc_IndexError, "a column is shorter than that"), NULL;
        if ((column->kind == NUMBERS && piece->width == BYTES) || (column->kind == NAMES && piece->width != BYTES))
            return PyErr_SetString(PyExc_TypeError, "numbers stand in the place of bytes, or names in that of a number"), NULL;
        if (column->kind != ITEMS || piece->width != BYTES) {
            long long number = column->items ? PyLong_AsLongLong(PySequence_Fast_GET_ITEM(column->items, place)) : number_in(column, place);
            if (number == -1 && PyErr_Occurred())
                return NULL;
            Py_ssize_t begin = 0;
            if (column->kind == NAMES) {
                begin = PyBytes_GET_SIZE(column->prefix);
                memcpy(text->made, PyBytes_AS_STRING(column->prefix), (size_t)begin);
            }
            text->text = text->made;
            text->length = begin + write_number(text->made + begin, number, column->kind == NAMES ? (int)column->digits : piece->width);
            if (column->kind == NAMES && column->is_encoded)
                encode(text);
            return Py_None;
        }
        value = PySequence_Fast_GET_ITEM(column->items, place);
    }
    if (!PyBytes_Check(value))
        return PyErr_Format(PyExc_TypeError, "bytes are needed, not %s", Py_TYPE(value)->tp_name), NULL;
    text->text = PyBytes_AS_STRING(value);
    text->length = PyBytes_GET_SIZE(value);
    return value;
}

static PyObject *joined(const Piece *pieces, Py_ssize_t count, const Column *columns, Py_ssize_t column_count, Py_ssize_t place, Text *texts) {
    Py_ssize_t length = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *said = say(&pieces[i], columns, column_count, place, &texts[i]);
        if (!said)
            return NULL;
        if (count == 1 && said != Py_None)
            return Py_NewRef(said);
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

static PyObject *argument(const Template *template, const Argument *argument, const Column *columns, Py_ssize_t column_count, Py_ssize_t place) {
    Text usual[PIECES_USUAL], *texts = argument->count > PIECES_USUAL ? PyMem_Malloc((size_t)argument->count * sizeof *texts) : usual;
    if (!texts)
        return PyErr_NoMemory();
    PyObject *made = joined(template->pieces + argument->first, argument->count, columns, column_count, place, texts);
    if (texts != usual)
        PyMem_Free(texts);
    return made;
}

/* render(prepared, places, columns): a list of the arguments of each row; of columns that were read. */
static PyObject *render(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    Template *template = count == 3 ? PyCapsule_GetPointer(given[0], NULL) : NULL;
    Columns *read = template ? PyCapsule_GetPointer(given[2], COLUMNS) : NULL;
    if (!read)
        return PyErr_Occurred() ? NULL : (PyErr_BadArgument(), NULL);
    PyObject *places = PySequence_Fast(given[1], "places are needed");
    PyObject *rows = places ? PyList_New(PySequence_Fast_GET_SIZE(places)) : NULL;
    for (Py_ssize_t i = 0; rows && i < PyList_GET_SIZE(rows); i++) {
        Py_ssize_t place = PyLong_AsSsize_t(PySequence_Fast_GET_ITEM(places, i));
        PyObject *row = place == -1 && PyErr_Occurred() ? NULL : PyList_New(template->argument_count);
        for (Py_ssize_t j = 0; row && j < template->argument_count; j++) {
            PyObject *made = argument(template, &template->arguments[j], read->columns, read->count, place);
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
    {"columns", read_columns, METH_O, "Reads columns."},
    {"render", (PyCFunction)(void (*)(void))render, METH_FASTCALL, "The arguments of commands."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "prepared", NULL, -1, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_prepared(void) {
    return PyModule_Create(&MODULE);
}
