/* How many steps the matcher of lstrlib.c takes for a pattern: its algorithm without its results. Included by call.c. */

enum { CAPTURES_MAX = 32, OPEN_CAPTURE = -1, PLACE_CAPTURE = -2, ESCAPE = '%' };

typedef struct {
    const char *begin, *end;
    int level, is_over; /* there is an error, or there were too many steps */
    double steps, steps_max;
    struct { const char *begin; ptrdiff_t length; } captures[CAPTURES_MAX];
} Match;

static const char *end_of_item(Match *match, const char *p) {
    if (*p == ESCAPE) {
        match->is_over |= !p[1];
        return p[1] ? p + 2 : p + 1;
    }
    if (*p++ != '[')
        return p;
    if (*p == '^')
        p++;
    do {
        if (!*p) {
            match->is_over = 1;
            return p;
        }
        if (*p++ == ESCAPE && *p)
            p++;
    } while (*p != ']');
    return p + 1;
}

static int in_class(int c, int class) {
    int is_in;
    switch (tolower(class)) {
    case 'a': is_in = isalpha(c); break;
    case 'c': is_in = iscntrl(c); break;
    case 'd': is_in = isdigit(c); break;
    case 'l': is_in = islower(c); break;
    case 'p': is_in = ispunct(c); break;
    case 's': is_in = isspace(c); break;
    case 'u': is_in = isupper(c); break;
    case 'w': is_in = isalnum(c); break;
    case 'x': is_in = isxdigit(c); break;
    case 'z': is_in = c == 0; break;
    default: return class == c;
    }
    return islower(class) ? is_in != 0 : !is_in;
}

static int in_set(Match *match, int c, const char *p, const char *last) {
    int is_in = 1;
    if (p[1] == '^') {
        is_in = 0;
        p++;
    }
    while (++p < last) {
        match->steps++;
        if (*p == ESCAPE) {
            if (in_class(c, (unsigned char)*++p))
                return is_in;
        } else if (p[1] == '-' && p + 2 < last) {
            p += 2;
            if ((unsigned char)p[-2] <= c && c <= (unsigned char)*p)
                return is_in;
        } else if ((unsigned char)*p == c)
            return is_in;
    }
    return !is_in;
}

static int matches_item(Match *match, int c, const char *p, const char *behind) {
    match->steps++;
    switch (*p) {
    case '.': return 1;
    case ESCAPE: return in_class(c, (unsigned char)p[1]);
    case '[': return in_set(match, c, p, behind - 1);
    default: return (unsigned char)*p == c;
    }
}

static const char *try_match(Match *match, const char *s, const char *p);

static const char *try_capture(Match *match, const char *s, const char *p) {
    if (match->level == CAPTURES_MAX) {
        match->is_over = 1;
        return NULL;
    }
    int is_place = p[1] == ')';
    match->captures[match->level].begin = s;
    match->captures[match->level++].length = is_place ? PLACE_CAPTURE : OPEN_CAPTURE;
    const char *found = try_match(match, s, p + 1 + is_place);
    if (!found)
        match->level--;
    return found;
}

static const char *close_capture(Match *match, const char *s, const char *p) {
    int open = match->level;
    while (--open >= 0 && match->captures[open].length != OPEN_CAPTURE)
        ;
    if (open < 0) {
        match->is_over = 1;
        return NULL;
    }
    match->captures[open].length = s - match->captures[open].begin;
    const char *found = try_match(match, s, p + 1);
    if (!found)
        match->captures[open].length = OPEN_CAPTURE;
    return found;
}

static const char *balance(Match *match, const char *s, const char *p) {
    if (!p[0] || !p[1]) {
        match->is_over = 1;
        return NULL;
    }
    if (*s != p[0])
        return NULL;
    int depth = 1;
    while (++s < match->end) {
        match->steps++;
        if (*s == p[1] && --depth == 0)
            return s + 1;
        if (*s == p[0] && *s != p[1])
            depth++;
    }
    return NULL;
}

static const char *same_again(Match *match, const char *s, int digit) {
    int i = digit - '1';
    if (i < 0 || i >= match->level || match->captures[i].length == OPEN_CAPTURE) {
        match->is_over = 1;
        return NULL;
    }
    size_t length = (size_t)match->captures[i].length; /* that of a place is larger than any text, as it is there */
    if ((size_t)(match->end - s) < length)
        return NULL;
    match->steps += (double)length / 16;
    return memcmp(match->captures[i].begin, s, length) ? NULL : s + length;
}

static const char *repeat(Match *match, const char *s, const char *p, const char *behind, int least) {
    ptrdiff_t count = 0;
    while (s + count < match->end && matches_item(match, (unsigned char)s[count], p, behind))
        count++;
    for (; count >= least; count--) {
        const char *found = try_match(match, s + count, behind + 1);
        if (found || match->is_over)
            return found;
    }
    return NULL;
}

static const char *repeat_shortly(Match *match, const char *s, const char *p, const char *behind) {
    for (;; s++) {
        const char *found = try_match(match, s, behind + 1);
        if (found || match->is_over)
            return found;
        if (s >= match->end || !matches_item(match, (unsigned char)*s, p, behind))
            return NULL;
    }
}

static const char *try_match(Match *match, const char *s, const char *p) {
    for (;;) {
        match->is_over |= ++match->steps > match->steps_max;
        if (match->is_over)
            return NULL;
        if (!*p)
            return s;
        if (*p == '(')
            return try_capture(match, s, p);
        if (*p == ')')
            return close_capture(match, s, p);
        if (*p == '$' && !p[1])
            return s == match->end ? s : NULL;
        if (*p == ESCAPE && p[1] == 'b') {
            s = balance(match, s, p + 2);
            if (!s)
                return NULL;
            p += 4;
            continue;
        }
        if (*p == ESCAPE && p[1] == 'f') {
            p += 2;
            match->is_over |= *p != '[';
            const char *behind = end_of_item(match, p);
            if (match->is_over)
                return NULL;
            int before = s == match->begin ? 0 : (unsigned char)s[-1];
            if (in_set(match, before, p, behind - 1) || !in_set(match, (unsigned char)*s, p, behind - 1))
                return NULL;
            p = behind;
            continue;
        }
        if (*p == ESCAPE && isdigit((unsigned char)p[1])) {
            s = same_again(match, s, p[1]);
            if (!s)
                return NULL;
            p += 2;
            continue;
        }
        const char *behind = end_of_item(match, p);
        if (match->is_over)
            return NULL;
        if (*behind == '*' || *behind == '+')
            return repeat(match, s, p, behind, *behind == '+');
        if (*behind == '-')
            return repeat_shortly(match, s, p, behind);
        int fits = s < match->end && matches_item(match, (unsigned char)*s, p, behind);
        if (*behind == '?') {
            const char *found = fits ? try_match(match, s + 1, behind + 1) : NULL;
            if (found || match->is_over)
                return found;
            p = behind + 1;
        } else if (fits) {
            s++;
            p = behind;
        } else
            return NULL;
    }
}

/* count(text, pattern, from, matches, has_anchor, steps_max): the steps, as far as there are no more, until so many matches were found. */
static int count_pattern(lua_State *L) {
    size_t length;
    const char *text = lua.tolstring(L, 1, &length), *pattern = lua.tolstring(L, 2, NULL);
    double from = lua.tonumber(L, 3), matches = lua.tonumber(L, 4);
    Match match = {.begin = text, .end = text + length, .steps_max = lua.tonumber(L, 6)};
    if (from < 0)
        from += (double)length + 1;
    const char *s = text + (from > (double)length ? length : from > 1 ? (size_t)from - 1 : 0);
    int is_anchored = lua.toboolean(L, 5) && *pattern == '^';
    while (matches > 0) {
        match.level = 0;
        const char *behind = try_match(&match, s, pattern + is_anchored);
        if (match.is_over || is_anchored)
            break;
        matches -= behind != NULL;
        if (behind && behind > s)
            s = behind;
        else if (s++ >= match.end)
            break;
    }
    lua.settop(L, 0);
    lua.pushnumber(L, match.steps);
    return 1;
}
