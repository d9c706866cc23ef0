/* Parse simple events of TensorBoard into columns, as visualprof/reader/run_data/events.py describes them. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "texts.h"
#include "wire.h"

/* Keys of fields: their number and wire type. */
enum { WALL_TIME = 1 << 3 | 1, STEP = 2 << 3, SUMMARY = 5 << 3 | 2, SESSION_LOG = 7 };
enum { VALUE = 1 << 3 | 2, TAG = 1 << 3 | 2, SIMPLE_VALUE = 2 << 3 | 5, METADATA = 9 << 3 | 2 };
enum { IMAGE = 4, HISTOGRAM = 5, AUDIO = 6, TENSOR = 8 };
enum { DTYPE = 1 << 3, SHAPE = 2 << 3 | 2, CONTENT = 4 << 3 | 2, FLOATS = 5 << 3 | 2, DOUBLES = 6 << 3 | 2 };
enum { FLOAT = 1, DOUBLE = 2 };

typedef struct {
    int64_t step, wall_ns, start, size;
    double number;
    int32_t tag, field;
    uint8_t bits;
} Row;

typedef struct {
    Row *rows;
    int64_t count, capacity;
    int64_t *first; /* a row of each tag: offset and size of its text */
    int64_t *first_size;
    int32_t *slots;
    int64_t tags, max_tags;
    uint64_t mask;
} Table;

/* Returns the number of a tag, or -1 if there are too many tags. */
static int32_t number_tag(Table *t, const uint8_t *data, int64_t start, int64_t size)
{
    uint64_t at = text_hash(data + start, size) & t->mask;
    for (; t->slots[at]; at = (at + 1) & t->mask) {
        int32_t tag = t->slots[at] - 1;
        if (t->first_size[tag] == size && !memcmp(data + t->first[tag], data + start, (size_t)size)) return tag;
    }
    if (t->tags == t->max_tags) return -1;
    t->first[t->tags] = start;
    t->first_size[t->tags] = size;
    t->slots[at] = (int32_t)++t->tags;
    return (int32_t)(t->tags - 1);
}

static double from_bits(const uint8_t *p, int bits)
{
    float single;
    double number;
    if (bits == 64) {
        memcpy(&number, p, 8);
        return number;
    }
    memcpy(&single, p, 4);
    return single;
}

/* Reads a tensor with one 32-bit or 64-bit float and no dimensions. Leaves row->bits 0 for other tensors. */
static void read_tensor(const uint8_t *data, int64_t start, int64_t size, Row *row)
{
    const uint8_t *p = data + start, *end = p + size;
    uint64_t key;
    int64_t value, length, type = 0, at = -1, held = 0;
    while (p < end) {
        p = field(data, p, end, &key, &value, &length);
        if (!p) return;
        if (key == DTYPE) {
            type = value;
        } else if ((key == CONTENT || key == FLOATS || key == DOUBLES) && at < 0) {
            if (key != CONTENT && (key == FLOATS ? FLOAT : DOUBLE) != type) return;
            at = value;
            held = length;
        } else if (key != SHAPE || length) {
            return;
        }
    }
    int bits = type == FLOAT ? 32 : type == DOUBLE ? 64 : 0;
    if (at < 0 || !bits || held * 8 != bits) return;
    row->number = from_bits(data + at, bits);
    row->bits = (uint8_t)bits;
}

/* Adds the row of a `Summary.Value`. Returns whether it is simple: one tag, one content, no other fields. */
static int add_value(Table *t, const uint8_t *data, int64_t start, int64_t size)
{
    if (t->count == t->capacity) return 0;
    Row *row = t->rows + t->count;
    const uint8_t *p = data + start, *end = p + size;
    uint64_t key;
    int64_t value, length;
    memset(row, 0, sizeof *row);
    row->start = start;
    row->size = size;
    row->number = 0.0 / 0.0;
    row->tag = -1;
    while (p < end) {
        p = field(data, p, end, &key, &value, &length);
        if (!p) return 0;
        if (key == TAG && row->tag < 0) {
            row->tag = number_tag(t, data, value, length);
            if (row->tag < 0) return 0;
        } else if (key == SIMPLE_VALUE && !row->field) {
            row->field = SIMPLE_VALUE >> 3;
            row->number = from_bits(p - 4, 32);
        } else if ((key >> 3 == TENSOR || key >> 3 == IMAGE || key >> 3 == HISTOGRAM || key >> 3 == AUDIO) &&
                   length >= 0 && !row->field) {
            row->field = (int32_t)(key >> 3);
            if (row->field == TENSOR) read_tensor(data, value, length, row);
        } else if (key != METADATA) {
            return 0;
        }
    }
    t->count++;
    return row->tag >= 0;
}

static int64_t to_ns(double seconds, int64_t unknown)
{
    if (!(seconds > 0 && seconds < 9e9)) return unknown;
    int64_t whole = (int64_t)seconds;
    double rest = (seconds - (double)whole) * 1e9;
    return whole * 1000000000 + (int64_t)((rest + 4503599627370496.0) - 4503599627370496.0); /* rounds half to even */
}

/* Adds the rows of an event. Returns whether the event is simple. */
static int add_event(Table *t, const uint8_t *data, int64_t start, int64_t size, int64_t unknown)
{
    const uint8_t *p = data + start, *end = p + size;
    int64_t first = t->count, step = 0, value, length, inner, inner_size;
    double wall_s = 0;
    uint64_t key, inner_key;
    while (p < end) {
        p = field(data, p, end, &key, &value, &length);
        if (!p) return 0;
        if (key == WALL_TIME) {
            memcpy(&wall_s, p - 8, 8);
        } else if (key == STEP) {
            step = value;
        } else if (key == SUMMARY) {
            const uint8_t *q = data + value, *stop = q + length;
            while (q < stop) {
                q = field(data, q, stop, &inner_key, &inner, &inner_size);
                if (!q || inner_key != VALUE || !add_value(t, data, inner, inner_size)) return 0;
            }
        } else if (key >> 3 <= 2 || key >> 3 == SUMMARY >> 3 || key >> 3 == SESSION_LOG) {
            return 0;
        }
    }
    int64_t wall_ns = to_ns(wall_s, unknown);
    for (int64_t i = first; i < t->count; i++) {
        t->rows[i].step = step;
        t->rows[i].wall_ns = wall_ns;
    }
    return 1;
}

static int parse(Table *t, const uint8_t *data, const int64_t *start, const int64_t *size, int64_t n, int64_t unknown)
{
    for (int64_t i = 0; i < n; i++)
        if (!add_event(t, data, start[i], size[i], unknown)) return 0;
    return 1;
}

/*
 * Parses events with scalars, tensors, images, histograms or sound into rows, grouped by tag, in the order of the file.
 *
 * start, size: (n,) the events. unknown: the time of an event without a valid one.
 * step, wall_ns, field, number, bits, value_start, value_size: columns of `ValueRows`, (capacity,), written.
 * first, first_size: text of each tag, (max_tags,), written. bounds: (max_tags + 1,) first row of each tag, written.
 * Returns the number of tags, or -1 if an event is not simple, there are too many rows or tags, or memory is exhausted.
 */
API int64_t vp_run_events(const uint8_t *data, const int64_t *start, const int64_t *size, int64_t n, int64_t unknown,
                          int64_t capacity, int64_t max_tags, int64_t *step, int64_t *wall_ns, int32_t *field_number,
                          double *number, uint8_t *bits, int64_t *value_start, int64_t *value_size, int64_t *first,
                          int64_t *first_size, int64_t *bounds)
{
    Table t = {.capacity = capacity, .first = first, .first_size = first_size, .max_tags = max_tags};
    uint64_t slots = 64;
    int64_t result = -1;
    while (slots < 2 * (uint64_t)max_tags) slots *= 2;
    t.mask = slots - 1;
    t.rows = malloc((size_t)(capacity + 1) * sizeof *t.rows);
    t.slots = calloc(slots, sizeof *t.slots);
    if (t.rows && t.slots && parse(&t, data, start, size, n, unknown)) {
        memset(bounds, 0, (size_t)(max_tags + 1) * sizeof *bounds);
        for (int64_t i = 0; i < t.count; i++) bounds[t.rows[i].tag + 1]++;
        for (int64_t i = 0; i < t.tags; i++) bounds[i + 1] += bounds[i];
        for (int64_t i = 0; i < t.count; i++) {
            const Row *row = t.rows + i;
            int64_t at = bounds[row->tag]++;
            step[at] = row->step;
            wall_ns[at] = row->wall_ns;
            field_number[at] = row->field;
            number[at] = row->number;
            bits[at] = row->bits;
            value_start[at] = row->start;
            value_size[at] = row->size;
        }
        for (int64_t i = t.tags; i > 0; i--) bounds[i] = bounds[i - 1]; /* each is now the end of its tag */
        bounds[0] = 0;
        result = t.tags;
    }
    free(t.rows);
    free(t.slots);
    return result;
}
