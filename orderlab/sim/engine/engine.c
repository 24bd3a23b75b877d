/* Virtual time in machine code: what `clock.py` and `network.py` say in Python of the agenda, of stations and of what is sent over a connection, with the
   same results to the last bit: all instants are doubles here as there, and added up in the same order. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <structmember.h>

static PyObject *name_callbacks, *name_ok, *name_value, *name_defused, *name_hold, *empty_schedule;

/* -- the agenda ------------------------------------------------------------------------------------------------------------------------------------- */

enum { CALL, EVENT, PACKET };
enum { PRIORITY_BIT = 62 };

typedef struct Sender Sender;

typedef struct {
    Sender *sender;
    long long number;
    PyObject *arrive, *on_held;
} Packet;

typedef struct {
    double at;
    long long order; /* by priority, then in the order of scheduling */
    PyObject *when;  /* the instant as it was given: whole or not */
    void *what;      /* by kind: a function, an event of SimPy, a Packet */
    int kind;
} Entry;

typedef struct {
    PyObject_HEAD
    PyObject *now;
    Entry *entries; /* a binary heap */
    Py_ssize_t count, room;
    long long scheduled;
} Agenda;

struct Sender {
    PyObject_HEAD
    Agenda *env;
    PyObject *delay_us;
    double bytes_per_us, sent_us, arrived_us;
    long long number;
    char is_cut;
};

static void drop(Entry *entry) {
    Py_DECREF(entry->when);
    if (entry->kind == PACKET) {
        Packet *packet = entry->what;
        Py_DECREF(packet->sender);
        Py_DECREF(packet->arrive);
        Py_DECREF(packet->on_held);
        PyMem_Free(packet);
    } else
        Py_DECREF((PyObject *)entry->what);
}

static int comes_before(const Entry *one, const Entry *other) {
    return one->at < other->at || (one->at == other->at && one->order < other->order);
}

/* Takes the references to `when` and to what `what` holds, also where it fails. */
static int push(Agenda *agenda, double at, int priority, PyObject *when, int kind, void *what) {
    Entry entry = {at, ((long long)priority << PRIORITY_BIT) | agenda->scheduled, when, what, kind};
    if (agenda->count == agenda->room) {
        Py_ssize_t room = agenda->room ? 2 * agenda->room : 256;
        Entry *more = PyMem_Realloc(agenda->entries, room * sizeof(Entry));
        if (!more)
            return drop(&entry), PyErr_NoMemory(), -1;
        agenda->entries = more;
        agenda->room = room;
    }
    agenda->scheduled++;
    Entry *entries = agenda->entries;
    Py_ssize_t place = agenda->count++;
    while (place) {
        Py_ssize_t above = (place - 1) / 2;
        if (!comes_before(&entry, &entries[above]))
            break;
        entries[place] = entries[above];
        place = above;
    }
    entries[place] = entry;
    return 0;
}

/* The first entry, with its references. */
static Entry pop(Agenda *agenda) {
    Entry *entries = agenda->entries, first = entries[0], last = entries[--agenda->count];
    Py_ssize_t place = 0, count = agenda->count;
    for (;;) {
        Py_ssize_t below = 2 * place + 1;
        if (below >= count)
            break;
        if (below + 1 < count && comes_before(&entries[below + 1], &entries[below]))
            below++;
        if (!comes_before(&entries[below], &last))
            break;
        entries[place] = entries[below];
        place = below;
    }
    entries[place] = last;
    return first;
}

/* What SimPy does with an event whose instant has come. */
static int happen(PyObject *event) {
    PyObject *callbacks = PyObject_GetAttr(event, name_callbacks);
    if (!callbacks)
        return -1;
    int failed = PyObject_SetAttr(event, name_callbacks, Py_None);
    PyObject *each = failed ? NULL : PyObject_GetIter(callbacks), *callback = NULL;
    Py_DECREF(callbacks);
    if (!each)
        return -1;
    while ((callback = PyIter_Next(each))) {
        PyObject *result = PyObject_CallOneArg(callback, event);
        Py_DECREF(callback);
        if (!result)
            break;
        Py_DECREF(result);
    }
    Py_DECREF(each);
    if (PyErr_Occurred())
        return -1;
    PyObject *ok = PyObject_GetAttr(event, name_ok);
    int is_ok = ok ? PyObject_IsTrue(ok) : -1;
    Py_XDECREF(ok);
    if (is_ok)
        return is_ok < 0 ? -1 : 0;
    if (PyObject_HasAttr(event, name_defused))
        return 0;
    PyObject *error = PyObject_GetAttr(event, name_value);
    if (error) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return -1;
}

static int called(PyObject *function) {
    PyObject *result = PyObject_CallNoArgs(function);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

static int get_there(Sender *sender, long long number, PyObject *arrive, PyObject *on_held) {
    if (number != sender->number)
        return 0;
    if (!sender->is_cut)
        return called(arrive);
    PyObject *result = PyObject_CallMethodObjArgs((PyObject *)sender, name_hold, arrive, on_held, NULL);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

static int happens(Agenda *agenda, Entry *entry) {
    int failed;
    Py_INCREF(entry->when);
    Py_XSETREF(agenda->now, entry->when);
    if (entry->kind == CALL)
        failed = called(entry->what);
    else if (entry->kind == EVENT)
        failed = happen(entry->what);
    else {
        Packet *packet = entry->what;
        failed = get_there(packet->sender, packet->number, packet->arrive, packet->on_held);
    }
    drop(entry);
    return failed;
}

static int is_set_up(Agenda *agenda) {
    if (!agenda->now)
        PyErr_SetString(PyExc_AttributeError, "_now");
    return agenda->now != NULL;
}

/* run_until(until): let all happen that is due before. */
static PyObject *agenda_run_until(Agenda *agenda, PyObject *until) {
    double end = PyFloat_AsDouble(until);
    if (end == -1 && PyErr_Occurred())
        return NULL;
    while (agenda->count && agenda->entries[0].at < end) {
        Entry entry = pop(agenda);
        if (happens(agenda, &entry))
            return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *agenda_step(Agenda *agenda, PyObject *none) {
    if (!agenda->count)
        return PyErr_SetNone(empty_schedule), NULL;
    Entry entry = pop(agenda);
    if (happens(agenda, &entry))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *agenda_peek(Agenda *agenda, PyObject *none) {
    return agenda->count ? Py_NewRef(agenda->entries[0].when) : PyFloat_FromDouble(Py_HUGE_VAL);
}

/* schedule(event, priority=1, delay=0) */
static PyObject *agenda_schedule(Agenda *agenda, PyObject *arguments, PyObject *by_name) {
    static char *names[] = {"event", "priority", "delay", NULL};
    PyObject *event, *delay = NULL;
    int priority = 1;
    if (!is_set_up(agenda) || !PyArg_ParseTupleAndKeywords(arguments, by_name, "O|iO", names, &event, &priority, &delay))
        return NULL;
    if (priority != 0 && priority != 1)
        return PyErr_SetString(PyExc_ValueError, "a priority is 0 or 1"), NULL;
    PyObject *when = delay ? PyNumber_Add(agenda->now, delay) : Py_NewRef(agenda->now);
    double at = when ? PyFloat_AsDouble(when) : -1;
    if (at == -1 && PyErr_Occurred())
        return Py_XDECREF(when), NULL;
    if (push(agenda, at, priority, when, EVENT, Py_NewRef(event)))
        return NULL;
    Py_RETURN_NONE;
}

/* The instant at which is called what is to be called at `at_us`; NULL with an exception. */
static PyObject *rounded_up(Agenda *agenda, double at_us, double *at) {
    double up = ceil(at_us), now;
    if (isnan(up))
        return PyErr_SetString(PyExc_ValueError, "an instant that is no number"), NULL;
    if (isinf(up))
        return PyErr_SetString(PyExc_OverflowError, "an instant that never comes"), NULL;
    now = PyFloat_AsDouble(agenda->now);
    if (now == -1 && PyErr_Occurred())
        return NULL;
    double delay = up - trunc(now);
    if (delay <= 0)
        return *at = now, Py_NewRef(agenda->now);
    if (PyLong_CheckExact(agenda->now))
        return *at = up, PyLong_FromDouble(up); /* exact, however far away */
    *at = now + delay;
    return PyFloat_FromDouble(*at);
}

/* call_at(clock, at_us, function) */
static PyTypeObject AgendaType;

static PyObject *call_at(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    if (count != 3 || !PyObject_TypeCheck(arguments[0], &AgendaType))
        return PyErr_SetString(PyExc_TypeError, "a Clock, an instant and a function are needed"), NULL;
    Agenda *agenda = (Agenda *)arguments[0];
    double at_us = PyFloat_AsDouble(arguments[1]), at;
    if ((at_us == -1 && PyErr_Occurred()) || !is_set_up(agenda))
        return NULL;
    PyObject *when = rounded_up(agenda, at_us, &at);
    if (!when || push(agenda, at, 1, when, CALL, Py_NewRef(arguments[2])))
        return NULL;
    Py_RETURN_NONE;
}

static int agenda_traverse(Agenda *agenda, visitproc visit, void *arg) {
    Py_VISIT(agenda->now);
    for (Py_ssize_t i = 0; i < agenda->count; i++) {
        Entry *entry = &agenda->entries[i];
        if (entry->kind == PACKET) {
            Packet *packet = entry->what;
            Py_VISIT(packet->sender);
            Py_VISIT(packet->arrive);
            Py_VISIT(packet->on_held);
        } else
            Py_VISIT((PyObject *)entry->what);
    }
    return 0;
}

static int agenda_clear(Agenda *agenda) {
    while (agenda->count) {
        Entry entry = agenda->entries[--agenda->count];
        drop(&entry);
    }
    Py_CLEAR(agenda->now);
    return 0;
}

static void agenda_dealloc(Agenda *agenda) {
    PyObject_GC_UnTrack(agenda);
    agenda_clear(agenda);
    PyMem_Free(agenda->entries);
    Py_TYPE(agenda)->tp_free((PyObject *)agenda);
}

static PyMethodDef agenda_methods[] = {
    {"run_until", (PyCFunction)agenda_run_until, METH_O, NULL},
    {"step", (PyCFunction)agenda_step, METH_NOARGS, NULL},
    {"peek", (PyCFunction)agenda_peek, METH_NOARGS, NULL},
    {"schedule", (PyCFunction)(void (*)(void))agenda_schedule, METH_VARARGS | METH_KEYWORDS, NULL},
    {NULL}};

static PyMemberDef agenda_members[] = {
    {"_now", T_OBJECT_EX, offsetof(Agenda, now), 0, NULL}, {"scheduled", T_LONGLONG, offsetof(Agenda, scheduled), READONLY, NULL}, {NULL}};

static PyTypeObject AgendaType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "engine.Agenda",
    .tp_basicsize = sizeof(Agenda),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_traverse = (traverseproc)agenda_traverse,
    .tp_clear = (inquiry)agenda_clear,
    .tp_dealloc = (destructor)agenda_dealloc,
    .tp_methods = agenda_methods,
    .tp_members = agenda_members,
};

/* -- what is sent over a connection ------------------------------------------------------------------------------------------------------------------ */

static int sender_init(Sender *sender, PyObject *arguments, PyObject *by_name) {
    static char *names[] = {"env", "delay_us", "bytes_per_us", NULL};
    PyObject *env, *delay_us;
    sender->bytes_per_us = Py_HUGE_VAL;
    if (!PyArg_ParseTupleAndKeywords(arguments, by_name, "O!O|d", names, &AgendaType, &env, &delay_us, &sender->bytes_per_us))
        return -1;
    Py_INCREF(env);
    Py_XSETREF(sender->env, (Agenda *)env);
    Py_INCREF(delay_us);
    Py_XSETREF(sender->delay_us, delay_us);
    return 0;
}

/* send(size_bytes, arrive, departs_us=None, on_held=None) */
static PyObject *sender_send(Sender *sender, PyObject *const *arguments, Py_ssize_t count, PyObject *by_name) {
    PyObject *given[4] = {NULL, NULL, Py_None, Py_None};
    static const char *const names[4] = {"size_bytes", "arrive", "departs_us", "on_held"};
    Agenda *agenda = sender->env;
    if (!agenda)
        return PyErr_SetString(PyExc_AttributeError, "env"), NULL;
    if (!is_set_up(agenda))
        return NULL;
    if (count > 4)
        return PyErr_SetString(PyExc_TypeError, "send takes at most 4 arguments"), NULL;
    for (Py_ssize_t i = 0; i < count; i++)
        given[i] = arguments[i];
    for (Py_ssize_t i = 0; by_name && i < PyTuple_GET_SIZE(by_name); i++) {
        int place = 0;
        while (place < 4 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(by_name, i), names[place]) != 0)
            place++;
        if (place == 4 || place < count)
            return PyErr_Format(PyExc_TypeError, "send: %R comes twice, or is none of its arguments", PyTuple_GET_ITEM(by_name, i)), NULL;
        given[place] = arguments[count + i];
    }
    if (!given[0] || !given[1])
        return PyErr_SetString(PyExc_TypeError, "send needs size_bytes and arrive"), NULL;
    double size = PyFloat_AsDouble(given[0]), ready = PyFloat_AsDouble(given[2] == Py_None ? agenda->now : given[2]);
    if (PyErr_Occurred())
        return NULL;
    double sent_us = (sender->sent_us > ready ? sender->sent_us : ready) + size / sender->bytes_per_us;
    sender->sent_us = sent_us;
    PyObject *drawn = PyObject_CallNoArgs(sender->delay_us);
    double delay = drawn ? PyFloat_AsDouble(drawn) : -1, at;
    Py_XDECREF(drawn);
    if (PyErr_Occurred())
        return NULL;
    if (sent_us + delay > sender->arrived_us)
        sender->arrived_us = sent_us + delay;
    PyObject *when = rounded_up(agenda, sender->arrived_us, &at);
    Packet *packet = when ? PyMem_Malloc(sizeof(Packet)) : NULL;
    if (!packet)
        return Py_XDECREF(when), PyErr_Occurred() ? NULL : PyErr_NoMemory();
    *packet = (Packet){(Sender *)Py_NewRef((PyObject *)sender), sender->number, Py_NewRef(given[1]), Py_NewRef(given[3])};
    if (push(agenda, at, 1, when, PACKET, packet))
        return NULL;
    Py_RETURN_NONE;
}

/* _get_there(number, arrive, on_held) */
static PyObject *sender_get_there(Sender *sender, PyObject *arguments) {
    long long number;
    PyObject *arrive, *on_held;
    if (!PyArg_ParseTuple(arguments, "LOO", &number, &arrive, &on_held) || get_there(sender, number, arrive, on_held))
        return NULL;
    Py_RETURN_NONE;
}

static int sender_traverse(Sender *sender, visitproc visit, void *arg) {
    Py_VISIT(sender->env);
    Py_VISIT(sender->delay_us);
    return 0;
}

static int sender_clear(Sender *sender) {
    Py_CLEAR(sender->env);
    Py_CLEAR(sender->delay_us);
    return 0;
}

static void sender_dealloc(Sender *sender) {
    PyObject_GC_UnTrack(sender);
    sender_clear(sender);
    Py_TYPE(sender)->tp_free((PyObject *)sender);
}

static PyMethodDef sender_methods[] = {
    {"send", (PyCFunction)(void (*)(void))sender_send, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"_get_there", (PyCFunction)sender_get_there, METH_VARARGS, NULL},
    {NULL}};

static PyMemberDef sender_members[] = {
    {"env", T_OBJECT_EX, offsetof(Sender, env), READONLY, NULL},
    {"delay_us", T_OBJECT_EX, offsetof(Sender, delay_us), 0, NULL},
    {"bytes_per_us", T_DOUBLE, offsetof(Sender, bytes_per_us), 0, NULL},
    {"is_cut", T_BOOL, offsetof(Sender, is_cut), 0, NULL},
    {"_number", T_LONGLONG, offsetof(Sender, number), 0, NULL},
    {"_sent_us", T_DOUBLE, offsetof(Sender, sent_us), 0, NULL},
    {"_arrived_us", T_DOUBLE, offsetof(Sender, arrived_us), 0, NULL},
    {NULL}};

static PyTypeObject SenderType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "engine.Sender",
    .tp_basicsize = sizeof(Sender),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)sender_init,
    .tp_traverse = (traverseproc)sender_traverse,
    .tp_clear = (inquiry)sender_clear,
    .tp_dealloc = (destructor)sender_dealloc,
    .tp_methods = sender_methods,
    .tp_members = sender_members,
};

/* -- how long jobs wait ------------------------------------------------------------------------------------------------------------------------------ */

typedef struct {
    double begun_us;
    long long jobs;
} Ahead;

typedef struct {
    PyObject_HEAD
    double total_us;
    Ahead *ahead; /* a ring of `room`, a power of two */
    size_t first, count, room;
} Waits;

static int note_wait(Waits *waits, double arrival_us, double begun_us, long long jobs) {
    while (waits->count && waits->ahead[waits->first].begun_us <= arrival_us) {
        waits->first = (waits->first + 1) & (waits->room - 1);
        waits->count--;
    }
    if (waits->count == waits->room) {
        size_t room = waits->room ? 2 * waits->room : 16;
        Ahead *more = PyMem_Malloc(room * sizeof(Ahead));
        if (!more)
            return PyErr_NoMemory(), -1;
        for (size_t i = 0; i < waits->count; i++)
            more[i] = waits->ahead[(waits->first + i) & (waits->room - 1)];
        PyMem_Free(waits->ahead);
        waits->ahead = more;
        waits->first = 0;
        waits->room = room;
    }
    waits->ahead[(waits->first + waits->count++) & (waits->room - 1)] = (Ahead){begun_us, jobs};
    waits->total_us += (begun_us - arrival_us) * jobs;
    return 0;
}

/* add(arrival_us, begun_us, jobs=1) */
static PyObject *waits_add(Waits *waits, PyObject *const *arguments, Py_ssize_t count) {
    if (count != 2 && count != 3)
        return PyErr_SetString(PyExc_TypeError, "an arrival, a beginning and perhaps a number of jobs are needed"), NULL;
    double arrival_us = PyFloat_AsDouble(arguments[0]), begun_us = PyFloat_AsDouble(arguments[1]);
    long long jobs = count == 3 ? PyLong_AsLongLong(arguments[2]) : 1;
    if (PyErr_Occurred() || note_wait(waits, arrival_us, begun_us, jobs))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *waits_until(Waits *waits, PyObject *now) {
    double now_us = PyFloat_AsDouble(now), beyond = 0;
    if (now_us == -1 && PyErr_Occurred())
        return NULL;
    for (size_t i = 0; i < waits->count; i++) {
        Ahead *each = &waits->ahead[(waits->first + i) & (waits->room - 1)];
        if (each->begun_us > now_us)
            beyond += (each->begun_us - now_us) * each->jobs;
    }
    return PyFloat_FromDouble(waits->total_us - beyond);
}

static void waits_dealloc(Waits *waits) {
    PyMem_Free(waits->ahead);
    Py_TYPE(waits)->tp_free((PyObject *)waits);
}

static PyMethodDef waits_methods[] = {
    {"add", (PyCFunction)(void (*)(void))waits_add, METH_FASTCALL, NULL}, {"until", (PyCFunction)waits_until, METH_O, NULL}, {NULL}};

static PyTypeObject WaitsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "engine.Waits",
    .tp_basicsize = sizeof(Waits),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)waits_dealloc,
    .tp_methods = waits_methods,
};

/* -- stations ---------------------------------------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    Waits *waits;
    double busy_us;
    long long jobs;
    Py_ssize_t servers;
    double *free_us; /* a binary heap: when each server is free */
} Servers;

static int servers_init(Servers *station, PyObject *arguments, PyObject *by_name) {
    static char *names[] = {"servers", NULL};
    Py_ssize_t servers;
    if (!PyArg_ParseTupleAndKeywords(arguments, by_name, "n", names, &servers))
        return -1;
    if (servers < 1)
        return PyErr_Format(PyExc_ValueError, "%zd servers: a station needs at least one", servers), -1;
    PyObject *waits = PyObject_CallNoArgs((PyObject *)&WaitsType);
    double *free_us = waits ? PyMem_Calloc(servers, sizeof(double)) : NULL;
    if (!free_us)
        return Py_XDECREF(waits), PyErr_Occurred() ? -1 : (PyErr_NoMemory(), -1);
    Py_XSETREF(station->waits, (Waits *)waits);
    PyMem_Free(station->free_us);
    station->free_us = free_us;
    station->servers = servers;
    station->busy_us = 0;
    station->jobs = 0;
    return 0;
}

/* The server that is free first is so at `ended`. */
static void occupy(Servers *station, double ended) {
    double *free_us = station->free_us;
    Py_ssize_t place = 0, count = station->servers;
    for (;;) {
        Py_ssize_t below = 2 * place + 1;
        if (below >= count)
            break;
        if (below + 1 < count && free_us[below + 1] < free_us[below])
            below++;
        if (free_us[below] >= ended)
            break;
        free_us[place] = free_us[below];
        place = below;
    }
    free_us[place] = ended;
}

static int serve_bursts(Servers *station, double arrival_us, long long count, long long burst, double each_us, double *done) {
    if (!station->free_us)
        return PyErr_SetString(PyExc_ValueError, "a station without servers"), -1;
    if (burst < 1)
        return PyErr_SetString(PyExc_ValueError, "a burst holds at least one"), -1;
    *done = arrival_us;
    for (; count > 0; count -= burst) {
        double work_us = (count < burst ? count : burst) * each_us, begun = station->free_us[0];
        if (begun > arrival_us) {
            if (note_wait(station->waits, arrival_us, begun, 1))
                return -1;
        } else
            begun = arrival_us;
        double ended = begun + work_us;
        occupy(station, ended);
        station->busy_us += work_us;
        station->jobs++;
        if (ended > *done)
            *done = ended;
    }
    return 0;
}

/* serve_bursts(arrival_us, count, burst, each_us) */
static PyObject *servers_serve_bursts(Servers *station, PyObject *const *arguments, Py_ssize_t given) {
    double done;
    if (given != 4)
        return PyErr_SetString(PyExc_TypeError, "an arrival, a count, a burst and a time for each are needed"), NULL;
    double arrival_us = PyFloat_AsDouble(arguments[0]), each_us = PyFloat_AsDouble(arguments[3]);
    long long count = PyLong_AsLongLong(arguments[1]), burst = PyLong_AsLongLong(arguments[2]);
    if (PyErr_Occurred() || serve_bursts(station, arrival_us, count, burst, each_us, &done))
        return NULL;
    return PyFloat_FromDouble(done);
}

/* stall(until_us) */
static PyObject *servers_stall(Servers *station, PyObject *until) {
    double until_us = PyFloat_AsDouble(until);
    if (until_us == -1 && PyErr_Occurred())
        return NULL;
    for (Py_ssize_t i = 0; i < station->servers; i++)
        if (station->free_us[i] < until_us)
            station->free_us[i] = until_us;
    Py_RETURN_NONE;
}

static void servers_dealloc(Servers *station) {
    Py_XDECREF(station->waits);
    PyMem_Free(station->free_us);
    Py_TYPE(station)->tp_free((PyObject *)station);
}

static PyMethodDef servers_methods[] = {
    {"serve_bursts", (PyCFunction)(void (*)(void))servers_serve_bursts, METH_FASTCALL, NULL},
    {"stall", (PyCFunction)servers_stall, METH_O, NULL},
    {NULL}};

static PyMemberDef servers_members[] = {
    {"servers", T_PYSSIZET, offsetof(Servers, servers), READONLY, NULL},
    {"jobs", T_LONGLONG, offsetof(Servers, jobs), 0, NULL},
    {"busy_us", T_DOUBLE, offsetof(Servers, busy_us), 0, NULL},
    {"waits", T_OBJECT_EX, offsetof(Servers, waits), READONLY, NULL},
    {NULL}};

static PyTypeObject ServersType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "engine.Servers",
    .tp_basicsize = sizeof(Servers),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)servers_init,
    .tp_dealloc = (destructor)servers_dealloc,
    .tp_methods = servers_methods,
    .tp_members = servers_members,
};

/* -- packs ------------------------------------------------------------------------------------------------------------------------------------------- */

/* grouped(values, keys): a dictionary of lists, as `packs.py` says. */
static PyObject *grouped(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    if (count != 2)
        return PyErr_SetString(PyExc_TypeError, "values and keys are needed"), NULL;
    PyObject *values = PyObject_GetIter(arguments[0]), *keys = values ? PyObject_GetIter(arguments[1]) : NULL, *groups = keys ? PyDict_New() : NULL;
    PyObject *value, *key = NULL;
    while (groups && (value = PyIter_Next(values))) {
        key = PyIter_Next(keys);
        PyObject *found = key ? PyDict_GetItemWithError(groups, key) : NULL; /* borrowed */
        int failed;
        if (found)
            failed = PyList_Append(found, value);
        else if (key && !PyErr_Occurred()) {
            found = PyList_New(1);
            failed = found ? 0 : -1;
            if (found) {
                PyList_SET_ITEM(found, 0, Py_NewRef(value));
                failed = PyDict_SetItem(groups, key, found);
                Py_DECREF(found);
            }
        } else
            failed = -1;
        if (!key && !PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "fewer keys than values");
        Py_XDECREF(key);
        Py_DECREF(value);
        if (failed)
            Py_CLEAR(groups);
    }
    if (groups && !PyErr_Occurred() && (key = PyIter_Next(keys))) {
        Py_DECREF(key);
        PyErr_SetString(PyExc_ValueError, "fewer values than keys");
    }
    Py_XDECREF(values);
    Py_XDECREF(keys);
    if (PyErr_Occurred())
        Py_CLEAR(groups);
    return groups;
}

/* spread(values, begin, target, places): where the values end that were put there. */
static PyObject *spread(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    if (count != 4 || !PyList_CheckExact(arguments[0]) || !PyList_CheckExact(arguments[2]))
        return PyErr_SetString(PyExc_TypeError, "a list of values, a number, a list and places are needed"), NULL;
    PyObject *values = arguments[0], *target = arguments[2], *places = PySequence_Fast(arguments[3], "places are needed");
    Py_ssize_t begin = places ? PyLong_AsSsize_t(arguments[1]) : -1, last = places ? PySequence_Fast_GET_SIZE(places) : 0, i = 0;
    for (; places && !PyErr_Occurred() && i < last; i++) {
        Py_ssize_t place = PyLong_AsSsize_t(PySequence_Fast_GET_ITEM(places, i));
        if (PyErr_Occurred())
            break;
        if (place < 0 || place >= PyList_GET_SIZE(target) || begin < 0 || begin + i >= PyList_GET_SIZE(values)) {
            PyErr_SetString(PyExc_IndexError, "fewer values than places, or no such place");
            break;
        }
        PyObject *before = PyList_GET_ITEM(target, place);
        PyList_SET_ITEM(target, place, Py_NewRef(PyList_GET_ITEM(values, begin + i)));
        Py_XDECREF(before);
    }
    Py_XDECREF(places);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(begin + last);
}

/* -- the module -------------------------------------------------------------------------------------------------------------------------------------- */

static PyMethodDef functions[] = {
    {"call_at", (PyCFunction)(void (*)(void))call_at, METH_FASTCALL, NULL}, {"grouped", (PyCFunction)(void (*)(void))grouped, METH_FASTCALL, NULL},
    {"spread", (PyCFunction)(void (*)(void))spread, METH_FASTCALL, NULL}, {NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "engine", NULL, -1, functions};

PyMODINIT_FUNC PyInit_engine(void) {
    PyTypeObject *types[] = {&AgendaType, &SenderType, &WaitsType, &ServersType};
    static const char *const type_names[] = {"Agenda", "Sender", "Waits", "Servers"};
    name_callbacks = PyUnicode_InternFromString("callbacks");
    name_ok = PyUnicode_InternFromString("_ok");
    name_value = PyUnicode_InternFromString("_value");
    name_defused = PyUnicode_InternFromString("_defused");
    name_hold = PyUnicode_InternFromString("_hold");
    PyObject *simpy = PyImport_ImportModule("simpy.core");
    empty_schedule = simpy ? PyObject_GetAttrString(simpy, "EmptySchedule") : NULL;
    Py_XDECREF(simpy);
    PyObject *module = empty_schedule ? PyModule_Create(&definition) : NULL;
    for (int i = 0; module && i < 4; i++)
        if (PyType_Ready(types[i]) || PyModule_AddObjectRef(module, type_names[i], (PyObject *)types[i]))
            Py_CLEAR(module);
    return module;
}
