/* What one instruction of a script does with long texts and many values, counted.

   Lua counts instructions, and one of them may compare two texts of 60 MB, read a number of a million digits, join texts, copy thousands of values
   or make a large table anew. The hook here looks at the instruction that is about to run. While a long text lives, every instruction is looked at,
   and what it does with long texts is charged exactly; the allocator knows when that is. What it does with all else is charged by sample: one instruction in
   about a thousand, at distances drawn from a fixed seed, stands for those since the last. So the same script is charged the same on every machine.

   The interface of Lua does not show registers. These are parts of the structures of Lua 5.1 with pointers of 64 bits; `knows_registers` tries
   whether they lie there. Included by call.c, after lua.h. */

enum { LONG_TEXT = 16384, TEXT_HEADER = 24, CANDIDATES = 16, SAMPLE_LEAST = 512, SAMPLE_SPREAD = 1024 };
enum { BYTES_PER_STEP = 64, DIGITS_PER_STEP = 8, VALUES_PER_STEP = 8, STEPS_PER_NUMBER = 16, STEPS_PER_ENTRY = 8, TOLD_AT_ONCE = 100000 };
enum { ENTRIES_FREE = 32 };
enum { MASK_COUNT = 8, KIND_FUNCTION = 6, VALUE_BYTES = 16, NODE_BYTES = 40 };
enum { STATE_TOP = 16, STATE_PC = 48, STATE_MASK = 100, STATE_COUNT = 104, STATE_LEFT = 108, STATE_HOOK = 112, FRAME_FUNCTION = 8 };
enum { CLOSURE_IS_C = 10, CLOSURE_CODE = 32, CODE_CONSTANTS = 16, CODE_BEGIN = 24, CODE_SIZE = 80, CODE_PARAMETERS = 113 };

typedef struct {
    lua_State *main, *running; /* where the script is: in one of its coroutines perhaps */
    int is_exact, is_telling;  /* every instruction is looked at; what runs now is limits.lua */
    long texts;                /* long ones that live */
    const char *candidates[CANDIDATES]; /* blocks that may become long texts: not written yet */
    size_t candidate_bytes[CANDIDATES];
    int candidate_count;
    long sample, sample_left, count_period, count_left;
    unsigned draw;
    double steps; /* not told to limits.lua yet */
    const size_t *used; /* bytes that the state holds */
    size_t used_before; /* the run */
} Counter;

static Counter *counter_of(lua_State *L);
static void on_count(lua_State *L, lua_Debug *unused);

#define AT(type, base, offset) (*(type const *)((const char *)(base) + (offset)))

/* Registers ------------------------------------------------------------------------------------------------------- */

static int is_text(const char *value) {
    return AT(int, value, 8) == STRING;
}

static size_t text_length(const char *value) {
    return AT(size_t, AT(const char *, value, 0), 16);
}

static const char *text_begin(const char *value) {
    return AT(const char *, value, 0) + TEXT_HEADER;
}

/* Whether a text of that length is charged now: long ones exactly, others by sample. */
static int is_meant(size_t length, int is_long) {
    return (length >= LONG_TEXT) == is_long;
}

static double digits_cost(const char *value, int is_long) {
    if (!is_text(value) || !is_meant(text_length(value), is_long))
        return 0;
    return (double)strspn(text_begin(value), " \t\n\v\f\r0123456789abcdefABCDEFxX+-.") / DIGITS_PER_STEP;
}

/* Texts are compared from NUL to NUL. */
static double comparison_cost(const char *a, const char *b, int is_long) {
    if (!is_text(a) || !is_text(b) || AT(const char *, a, 0) == AT(const char *, b, 0))
        return 0;
    size_t length = text_length(a) < text_length(b) ? text_length(a) : text_length(b), same = 0;
    if (!is_meant(length, is_long))
        return 0;
    const char *one = text_begin(a), *other = text_begin(b);
    while (same + BYTES_PER_STEP <= length && !memcmp(one + same, other + same, BYTES_PER_STEP))
        same += BYTES_PER_STEP;
    double cost = (double)same / BYTES_PER_STEP;
    for (const char *at = one; (at = memchr(at, 0, (size_t)(one + same - at))) != NULL; at++)
        cost++;
    return cost;
}

static double joining_cost(const char *first, const char *last, int is_long) {
    size_t bytes = 0, numbers = 0;
    for (const char *value = first; value <= last; value += VALUE_BYTES)
        if (is_text(value))
            bytes += text_length(value);
        else
            numbers++;
    return is_meant(bytes, is_long) ? (double)bytes / BYTES_PER_STEP + (double)numbers * STEPS_PER_NUMBER : 0;
}

/* What the instruction that is about to run costs beside itself: with long texts, or with all else. */
static double instruction_cost(lua_State *L, int is_long) {
    const char *base = AT(const char *, L, STATE_BASE), *frame = AT(const char *, L, STATE_FRAME), *top = AT(const char *, L, STATE_TOP);
    const char *function = AT(const char *, frame, FRAME_FUNCTION);
    if (AT(const char *, frame, FRAME_BASE) != base || AT(int, function, 8) != KIND_FUNCTION)
        return 0;
    const char *closure = AT(const char *, function, 0);
    if (AT(unsigned char, closure, CLOSURE_IS_C))
        return 0;
    const char *code = AT(const char *, closure, CLOSURE_CODE), *constants = AT(const char *, code, CODE_CONSTANTS);
    const uint32_t *begin = AT(const uint32_t *, code, CODE_BEGIN), *next = AT(const uint32_t *, L, STATE_PC);
    if (next <= begin || next > begin + AT(int, code, CODE_SIZE))
        return 0;
    uint32_t instruction = next[-1], b = instruction >> 23, c = instruction >> 14 & 511;
    const char *a = base + (instruction >> 6 & 255) * VALUE_BYTES;
#define REGISTER(x) (base + (x) * VALUE_BYTES)
#define OPERAND(x) ((x) & 256 ? constants + ((x) & 255) * VALUE_BYTES : REGISTER(x))
    long values = 0;
    switch (instruction & 63) {
    case 12: case 13: case 14: case 15: case 16: case 17: /* ADD SUB MUL DIV MOD POW */
        return digits_cost(OPERAND(b), is_long) + digits_cost(OPERAND(c), is_long);
    case 18: /* UNM */
        return digits_cost(REGISTER(b), is_long);
    case 21: /* CONCAT */
        return joining_cost(REGISTER(b), REGISTER(c), is_long);
    case 24: case 25: /* LT LE */
        return comparison_cost(OPERAND(b), OPERAND(c), is_long);
    case 32: /* FORPREP */
        return digits_cost(a, is_long) + digits_cost(a + VALUE_BYTES, is_long) + digits_cost(a + 2 * VALUE_BYTES, is_long);
    case 37: /* VARARG */
        values = b ? (long)b - 1 : (long)((base - function) / VALUE_BYTES) - AT(unsigned char, code, CODE_PARAMETERS) - 1;
        break;
    case 34: /* SETLIST */
        values = b ? (long)b : (long)((top - a) / VALUE_BYTES) - 1;
        values *= VALUES_PER_STEP;
        break;
    case 29: case 30: /* TAILCALL RETURN */
        values = b ? (long)b - 1 : (long)((top - a) / VALUE_BYTES);
        break;
    }
#undef OPERAND
#undef REGISTER
    return is_long || values <= VALUES_PER_STEP ? 0 : (double)(values / VALUES_PER_STEP);
}

static int knows_registers(lua_State *L) {
    size_t length;
    lua.pushlstring(L, "orderlab", 8);
    const char *text = lua.tolstring(L, -1, &length) - TEXT_HEADER;
    int is_known = sizeof(void *) == 8 && AT(unsigned char, text, 8) == STRING && AT(size_t, text, 16) == 8;
    is_known = is_known && AT(const char *, AT(const char *, L, STATE_TOP) - VALUE_BYTES, 0) == text;
    lua.settop(L, -2);
    lua.sethook(L, on_count, MASK_COUNT, 12345);
    is_known = is_known && AT(unsigned char, L, STATE_MASK) == MASK_COUNT && AT(int, L, STATE_COUNT) == 12345 && AT(int, L, STATE_LEFT) == 12345;
    is_known = is_known && AT(lua_Hook, L, STATE_HOOK) == on_count;
    lua.sethook(L, NULL, 0, 0);
    return is_known;
}

/* When ------------------------------------------------------------------------------------------------------------- */

static void count_from_now(Counter *counter, lua_State *L) {
    long left = counter->sample_left < counter->count_left ? counter->sample_left : counter->count_left;
    lua.sethook(L, on_count, MASK_COUNT, counter->is_exact || left < 1 ? 1 : (int)left);
}

/* What has passed in the thread since its hook was set. */
static void note_passed(Counter *counter, long passed) {
    counter->sample_left -= passed;
    counter->count_left -= passed;
    counter->steps += (double)passed;
}

static void draw_sample(Counter *counter) {
    counter->draw = counter->draw * 1664525u + 1013904223u;
    counter->sample = counter->sample_left = SAMPLE_LEAST + (long)(counter->draw >> 16) % SAMPLE_SPREAD;
}

static void look_at_each(Counter *counter, lua_State *L) {
    if (AT(lua_Hook, L, STATE_HOOK) != on_count || AT(int, L, STATE_COUNT) == 1 || counter->is_telling)
        return;
    note_passed(counter, AT(int, L, STATE_COUNT) - AT(int, L, STATE_LEFT));
    lua.sethook(L, on_count, MASK_COUNT, 1);
}

/* A text when it is white, as new ones and those that go are. */
static int is_long_text(const char *block, size_t size) {
    return AT(unsigned char, block, 8) == STRING && AT(unsigned char, block, 9) && AT(size_t, block, 16) == size - TEXT_HEADER - 1;
}

static void settle_candidates(Counter *counter) {
    for (int i = 0; i < counter->candidate_count; i++)
        counter->texts += is_long_text(counter->candidates[i], counter->candidate_bytes[i]);
    counter->candidate_count = 0;
}

/* The allocator has made a block. */
static void note_block(Counter *counter, const char *block, size_t size) {
    size_t entries = size / NODE_BYTES;
    if (entries > ENTRIES_FREE && size % NODE_BYTES == 0 && !(entries & (entries - 1))) { /* of a table that is made anew */
        counter->steps += (double)entries * STEPS_PER_ENTRY;
        return;
    }
    if (size <= LONG_TEXT)
        return;
    if (counter->candidate_count == CANDIDATES)
        settle_candidates(counter); /* all but the last are written by now */
    counter->candidates[counter->candidate_count] = block;
    counter->candidate_bytes[counter->candidate_count++] = size;
    counter->is_exact = 1;
    look_at_each(counter, counter->running);
}

/* It is about to free one. */
static void note_freed(Counter *counter, const char *block, size_t size) {
    for (int i = 0; i < counter->candidate_count; i++)
        if (counter->candidates[i] == block) {
            counter->candidates[i] = counter->candidates[--counter->candidate_count];
            counter->candidate_bytes[i] = counter->candidate_bytes[counter->candidate_count];
            return;
        }
    counter->texts -= is_long_text(block, size);
}

/* Between samples only the clock is looked at: how often depends on memory, and so on what ran before. */
static void tell(Counter *counter, lua_State *L, int is_counted) {
    double steps = counter->steps;
    counter->count_left = counter->count_period;
    if (is_counted)
        counter->steps = 0;
    count_from_now(counter, L); /* what is told may end the script */
    counter->is_telling = 1;
    lua.pushlightuserdata(L, counter);
    lua.rawget(L, REGISTRY);
    if (is_counted)
        lua.pushnumber(L, steps);
    else
        lua.pushnil(L);
    call_as_one(L, 1, 0);
    counter->is_telling = 0;
    count_from_now(counter, L); /* without the instructions that this took */
}

static void on_count(lua_State *L, lua_Debug *unused) {
    (void)unused;
    Counter *counter = counter_of(L);
    if (!counter)
        return;
    counter->is_telling = 0;
    note_passed(counter, AT(int, L, STATE_COUNT));
    if (counter->is_exact) {
        settle_candidates(counter);
        counter->is_exact = counter->texts > 0;
        counter->steps += instruction_cost(L, 1);
    }
    int is_sampled = counter->sample_left <= 0;
    if (is_sampled) {
        counter->steps += instruction_cost(L, 0) * (double)counter->sample;
        draw_sample(counter);
    }
    if (is_sampled || counter->count_left <= 0 || counter->steps > TOLD_AT_ONCE)
        tell(counter, L, is_sampled || counter->steps > TOLD_AT_ONCE);
    else if (!counter->is_exact || AT(int, L, STATE_COUNT) != 1)
        count_from_now(counter, L);
}

/* What limits.lua calls --------------------------------------------------------------------------------------------- */

static Counter *counter_argument(lua_State *L) {
    return lua.touserdata(L, UPVALUE(1));
}

/* begin(period): a run begins, and is told of about as many steps at once. */
static int begin_count(lua_State *L) {
    Counter *counter = counter_argument(L);
    counter->steps = 0;
    counter->draw = 1;
    counter->running = counter->main;
    counter->used_before = *counter->used;
    counter->is_exact = counter->texts > 0 || counter->candidate_count > 0;
    counter->count_period = counter->count_left = (long)lua.tonumber(L, 1);
    draw_sample(counter);
    count_from_now(counter, counter->main);
    return 0;
}

/* set_period(period): from now on of so many. */
static int set_count_period(lua_State *L) {
    Counter *counter = counter_argument(L);
    counter->count_period = (long)lua.tonumber(L, 1);
    if (AT(lua_Hook, L, STATE_HOOK) == on_count && !counter->is_telling) {
        note_passed(counter, AT(int, L, STATE_COUNT) - AT(int, L, STATE_LEFT));
        counter->count_left = counter->count_period;
        count_from_now(counter, L);
    } else
        counter->count_left = counter->count_period;
    return 0;
}

/* enter(thread): it is resumed, or goes on; nil is the main one. */
static int enter_thread(lua_State *L) {
    Counter *counter = counter_argument(L);
    lua_State *thread = lua.type(L, 1) == NIL ? counter->main : lua.tothread(L, 1);
    counter->running = thread;
    if (AT(lua_Hook, thread, STATE_HOOK) != on_count)
        count_from_now(counter, thread);
    else if (counter->is_exact)
        look_at_each(counter, thread);
    return 0;
}

/* A finalizer of the collector: its instructions are none of the script's. `f` is given the object and the kilobytes beyond those before the run. */
static int finalize(lua_State *L) {
    Counter *counter = counter_argument(L);
    int is_counting = AT(lua_Hook, L, STATE_HOOK) == on_count;
    if (is_counting && !counter->is_telling)
        note_passed(counter, AT(int, L, STATE_COUNT) - AT(int, L, STATE_LEFT));
    if (is_counting) /* the hook of a measurement stays: limits.lua tells the script's instructions from others */
        lua.sethook(L, NULL, 0, 0);
    size_t used = *counter->used;
    lua.settop(L, 1);
    lua.pushvalue(L, UPVALUE(2));
    lua.insert(L, 1);
    lua.pushnumber(L, used > counter->used_before ? (double)(used - counter->used_before) / 1024 : 0);
    lua.pcall(L, 2, 0, 0);
    if (is_counting)
        count_from_now(counter, L);
    return 0;
}

static int make_finalizer(lua_State *L) {
    lua.settop(L, 1);
    lua.pushlightuserdata(L, counter_argument(L));
    lua.insert(L, 1);
    lua.pushcclosure(L, finalize, 2);
    return 1;
}

/* open(tell): begin, set_period, enter, make_finalizer. `tell` is given how many steps were taken since it was told last, or nil to look at the clock alone. */
static int open_count(lua_State *L) {
    Counter *counter = counter_argument(L);
    lua.settop(L, 1);
    lua.pushlightuserdata(L, counter);
    lua.insert(L, 1);
    lua.rawset(L, REGISTRY);
    static const lua_CFunction functions[] = {begin_count, set_count_period, enter_thread, make_finalizer};
    for (int i = 0; i < 4; i++) {
        lua.pushlightuserdata(L, counter);
        lua.pushcclosure(L, functions[i], 1);
    }
    return 4;
}
