/* Parse the brackets, commas and keys between two scalar values of an event list. */
#include "scan.h"

/* Returns the number of an argument, or SKIPPED. */
static int32_t argument(const Reader *r, Text key, size_t size)
{
    for (uint32_t i = 0; i < r->field_count; i++)
        if (r->fields[i].size == size && !memcmp(r->fields[i].name, key, size)) return (int32_t)i;
    return SKIPPED;
}

static int32_t event_key(Text key, size_t size)
{
    static const struct { char text[5]; int32_t key; } keys[] = {
        {"ph", PH}, {"cat", CAT}, {"name", NAME}, {"pid", PID}, {"tid", TID},
        {"ts", TS}, {"dur", DUR}, {"id", ID}, {"args", ARGS},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strlen(keys[i].text) == size && !memcmp(keys[i].text, key, size)) return keys[i].key;
    return SKIPPED;
}

/*
 * Returns the value after the key at p and its colon, and sets gap->key. If the value is the object of `args`, sets
 * `opened` and returns the position after its `{`.
 */
static Text key_end(Reader *r, Text p, Gap *gap, int *opened)
{
    if (*p != '"') return fault(r, p);
    Text key = p + 1, end = string_end(r, p);
    if (!end) return NULL;
    size_t size = (size_t)(end - 1 - key);
    if (memchr(key, '\\', size)) return fault(r, p);
    p = blanks_end(end);
    if (*p != ':') return fault(r, p);
    p = blanks_end(p + 1);
    *opened = 0;
    if (gap->state == IN_ARGS) gap->key = argument(r, key, size);
    else {
        gap->key = event_key(key, size);
        if (gap->key == ARGS) {
            if (gap->state == AFTER_ARGS) return fault(r, p); /* a second `args` would replace the first */
            gap->state = AFTER_ARGS;
            if (*p == '{') {
                gap->state = IN_ARGS;
                *opened = 1;
                return p + 1;
            }
        }
    }
    return p < r->end ? p : fault(r, p);
}

/* Returns whether the list ends at the bracket at p: other keys or the end of the document follow. Otherwise it is stray. */
static int ends_list(const Reader *r, Text p)
{
    p = blanks_end(p + 1);
    return p >= r->end || *p == '}' || (*p == ',' && *blanks_end(p + 1) == '"');
}

/* Returns the `{` of the next event. At the end of the list or the text, returns NULL and sets gap->key to LAST. */
static Text next_event(Reader *r, Text p, Gap *gap, int comma)
{
    p = blanks_end(p);
    if (p >= r->end || (*p == ']' && !comma && ends_list(r, p))) {
        gap->key = LAST;
        r->last = p;
        return NULL;
    }
    if (*p == ',' && !comma && !r->first) return next_event(r, p + 1, gap, 1);
    return *p == '{' && (comma || gap->ends == 0) ? p : fault(r, p);
}

/*
 * Parses the gap at p, up to the next scalar value, whose key is gap->key. Keys may have any order and blanks.
 *
 * Returns the position of that value. Returns NULL at the end of the list or text (gap->key == LAST), or if the gap is
 * rejected.
 *
 * state: state of the previous value.
 */
Text gap_end(Reader *r, Text p, uint32_t state, Gap *gap)
{
    Text start = p;
    int at_start = 0;
    gap->ends = gap->closed = gap->opened = 0;
    gap->key = SKIPPED;
    gap->state = state;
    for (p = blanks_end(p);; p = blanks_end(p)) {
        if (gap->state == BETWEEN) {
            if (!(p = next_event(r, p, gap, 0))) return NULL;
            r->first = 0;
            gap->opened = (uint32_t)(++p - start);
            gap->state = IN_EVENT;
            at_start = 1;
            p = blanks_end(p);
        }
        if (*p == '}') {
            at_start = 0;
            p++;
            if (gap->state == IN_ARGS) gap->state = AFTER_ARGS;
            else {
                gap->state = BETWEEN;
                gap->ends++;
                gap->closed = (uint32_t)(p - start);
            }
            continue;
        }
        if (!at_start) {
            if (*p != ',') return fault(r, p);
            p = blanks_end(p + 1);
        }
        if (!(p = key_end(r, p, gap, &at_start))) return NULL;
        if (!at_start) return p;
    }
}
