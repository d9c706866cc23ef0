/*
 * Memory snapshots of PyTorch: the opcodes of a pickle of built-in containers, straight to columns.
 *
 * Only the form that torch and torch_npu write is read. Anything else, damage included, stops the reader; the pure-Python
 * decoder then reads the file or explains what is wrong. Nothing is called, and memory is bounded by the size of the file:
 * each value costs at least one byte of it, indices of the memo follow each other, and texts are not copied.
 */
#include <stdlib.h>
#include <string.h>
#include <stdint.h>

#include "api.h"

enum { MAX_STACK = 1 << 20, MAX_MARKS = 64, MAX_POOLS = 1 << 16, MISSING = -1 };
#define MAX_SIZE (INT64_C(1) << 62)

typedef enum { T_NONE, T_BOOL, T_INT, T_WIDE, T_FLOAT, T_TEXT, T_DICT, T_LIST, T_TUPLE } Tag;
typedef enum { EMPTY, FRAME, ENTRY, SEGMENT, BLOCK, ANNOTATION, OTHER, LISTS } Kind;
typedef struct { int64_t v; uint8_t tag; } Value;
typedef struct { uint32_t row; uint32_t count; uint8_t kind; } Container; /* rows [row, row + count) of its kind */
typedef struct { const uint8_t *text; uint32_t size, hash; } Span;
typedef struct { int32_t file, name; int64_t line; } FrameRow;
typedef struct { int64_t values[3]; } Triple;

typedef struct { void *items; size_t count, capacity; } Array;

enum Column {
    ENTRY_ACTION, ENTRY_ADDR, ENTRY_SIZE, ENTRY_TIME, ENTRY_STREAM, ENTRY_POOL, ENTRY_STACK, /* the history */
    SEGMENT_DEVICE, SEGMENT_ADDR, SEGMENT_SIZE, SEGMENT_STREAM, SEGMENT_POOL, SEGMENT_FLAGS, SEGMENT_STACK,
    SEGMENT_BLOCK, SEGMENT_BLOCKS,
    BLOCK_ADDR, BLOCK_SIZE, BLOCK_REQUESTED, BLOCK_STATE, BLOCK_STACK,
    ANNOTATION_TIME, ANNOTATION_NAME, ANNOTATION_IS_START,
    TRACE_FIRST, TRACE_COUNT,
    STREAM_VALUE, STREAM_IS_WIDE, POOL_FIRST, POOL_SECOND,
    FRAME_FILE, FRAME_LINE, FRAME_NAME, STACK_OFFSET, STACK_FRAME,
    TEXT_OFFSET, TEXT_SIZE,
    SETTING_KEY, SETTING_TAG, SETTING_VALUE, SETTING_PARENT,
    COLUMNS
};

static const uint8_t WIDTHS[COLUMNS] = {
    1, 8, 8, 8, 4, 4, 4,
    8, 8, 8, 4, 4, 1, 4, 4, 4,
    8, 8, 8, 1, 4,
    8, 4, 1,
    4, 4,
    8, 1, 8, 8,
    4, 8, 4, 8, 4,
    8, 4,
    4, 1, 8, 4,
};

/* Keys and words that have a meaning; their numbers are those of the first texts. */
enum Word {
    W_EMPTY, W_ACTION, W_ADDR, W_DEVICE_FREE, W_SIZE, W_TIME_US, W_STREAM, W_POOL_ID, W_FRAMES,
    W_FILENAME, W_LINE, W_NAME, W_TOTAL_SIZE, W_ADDRESS, W_DEVICE, W_SEGMENT_TYPE, W_SEGMENT_POOL_ID, W_IS_EXPANDABLE,
    W_BLOCKS, W_STATE, W_REQUESTED_SIZE, W_HISTORY, W_STAGE, W_SEGMENTS, W_DEVICE_TRACES, W_EXTERNAL_ANNOTATIONS,
    W_ALLOCATOR_SETTINGS, W_SMALL, W_START,
    W_ALLOC, W_FREE_REQUESTED, W_FREE_COMPLETED, W_SEGMENT_ALLOC, W_SEGMENT_FREE, W_SEGMENT_MAP, W_SEGMENT_UNMAP,
    W_OOM, W_SNAPSHOT, /* in the order of Action */
    W_INACTIVE, W_ACTIVE, W_PENDING, W_AWAITING, W_UNKNOWN_FILE, WORDS
};
static const char *const WORD_TEXTS[WORDS] = {
    "", "action", "addr", "device_free", "size", "time_us", "stream", "pool_id", "frames",
    "filename", "line", "name", "total_size", "address", "device", "segment_type", "segment_pool_id", "is_expandable",
    "blocks", "state", "requested_size", "history", "stage", "segments", "device_traces", "external_annotations",
    "allocator_settings", "small", "START",
    "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap",
    "oom", "snapshot",
    "inactive", "active_allocated", "active_pending_free", "active_awaiting_free", "??",
};

typedef struct {
    const uint8_t *start, *at, *end;
    Value *stack;
    size_t depth, stack_capacity;
    size_t marks[MAX_MARKS], mark_count;
    Array memo;                /* Value */
    Array dicts, lists;        /* Container */
    Array tuples;              /* Triple: number of values, the first and the second */
    Array texts;               /* Span */
    Array pairs;               /* Value: keys and values of other dictionaries */
    Array list_rows;           /* int32: lists in lists */
    uint32_t *text_slots, *frame_slots, *stack_slots;
    uint32_t text_mask, frame_mask, stack_mask;
    Array columns[COLUMNS];
    int failed;
} Snapshot;

static void *grow(Snapshot *s, Array *array, size_t extra, size_t width)
{
    if (array->count + extra > array->capacity) {
        size_t capacity = array->capacity ? array->capacity : 256;
        while (capacity < array->count + extra) capacity += capacity / 2 + 1;
        void *items = realloc(array->items, capacity * width);
        if (!items) {
            s->failed = 1;
            return NULL;
        }
        array->items = items;
        array->capacity = capacity;
    }
    return (uint8_t *)array->items + array->count * width;
}

#define PUSH(s, array, type, item)                                                                                     \
    do {                                                                                                               \
        type *slot_ = grow(s, array, 1, sizeof(type));                                                                 \
        if (slot_) {                                                                                                   \
            *slot_ = item;                                                                                             \
            (array)->count++;                                                                                          \
        }                                                                                                              \
    } while (0)
#define ITEMS(array, type) ((type *)(array).items)

static void add(Snapshot *s, enum Column column, int64_t value)
{
    Array *array = s->columns + column;
    switch (WIDTHS[column]) {
    case 1: PUSH(s, array, uint8_t, (uint8_t)value); break;
    case 4: PUSH(s, array, int32_t, (int32_t)value); break;
    default: PUSH(s, array, int64_t, value);
    }
}

static uint32_t hash_bytes(const void *bytes, size_t size)
{
    const uint8_t *p = bytes;
    uint64_t h = UINT64_C(0x9E3779B97F4A7C15) ^ size;
    for (; size >= 8; p += 8, size -= 8) {
        uint64_t part;
        memcpy(&part, p, 8);
        h = (h ^ part) * UINT64_C(0xff51afd7ed558ccd);
        h ^= h >> 32;
    }
    uint64_t part = 0;
    memcpy(&part, p, size);
    h = (h ^ part) * UINT64_C(0xc4ceb9fe1a85ec53);
    return (uint32_t)(h ^ (h >> 29));
}

/* Doubles a table of row numbers (0: free, else row + 1) if it is half full. `hash` returns the hash of a row. */
static void reserve(Snapshot *s, uint32_t **slots, uint32_t *mask, size_t rows, uint32_t (*hash)(Snapshot *, uint32_t))
{
    if (*slots && rows * 2 < *mask) return;
    uint32_t larger = *slots ? *mask * 2 + 1 : 1023;
    uint32_t *moved = calloc((size_t)larger + 1, sizeof *moved);
    if (!moved) {
        s->failed = 1;
        return;
    }
    for (uint32_t row = 0; row < rows; row++) {
        uint32_t i = hash(s, row) & larger;
        while (moved[i]) i = (i + 1) & larger;
        moved[i] = row + 1;
    }
    free(*slots);
    *slots = moved;
    *mask = larger;
}

static uint32_t text_hash(Snapshot *s, uint32_t row) { return ITEMS(s->texts, Span)[row].hash; }

/* Returns whether a text is UTF-8 as Python decodes it with "surrogatepass". */
static int is_utf8(const uint8_t *text, uint32_t size)
{
    for (const uint8_t *end = text + size; text < end;) {
        uint32_t first = *text++, more = first < 0x80 ? 0 : first < 0xC2 ? 4 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
        if (first > 0xF4 || more == 4 || more > (uint32_t)(end - text)) return 0;
        if ((first == 0xE0 && *text < 0xA0) || (first == 0xF0 && *text < 0x90) || (first == 0xF4 && *text > 0x8F)) return 0;
        for (; more; more--)
            if (*text++ >> 6 != 2) return 0;
    }
    return 1;
}

static int64_t text_number(Snapshot *s, const uint8_t *text, uint32_t size)
{
    reserve(s, &s->text_slots, &s->text_mask, s->texts.count, text_hash);
    if (s->failed) return 0;
    uint32_t hash = hash_bytes(text, size), i = hash & s->text_mask;
    for (; s->text_slots[i]; i = (i + 1) & s->text_mask) {
        const Span *span = ITEMS(s->texts, Span) + s->text_slots[i] - 1;
        if (span->hash == hash && span->size == size && !memcmp(span->text, text, size)) return s->text_slots[i] - 1;
    }
    if (!is_utf8(text, size)) s->failed = 1;
    Span span = {text, size, hash};
    PUSH(s, &s->texts, Span, span);
    s->text_slots[i] = (uint32_t)s->texts.count;
    return (int64_t)s->texts.count - 1;
}

static uint32_t hash_of_frame(int32_t file, int64_t line, int32_t name)
{
    int64_t parts[3] = {file, line, name};
    return hash_bytes(parts, sizeof parts);
}

static uint32_t frame_hash(Snapshot *s, uint32_t row)
{
    return hash_of_frame(ITEMS(s->columns[FRAME_FILE], int32_t)[row], ITEMS(s->columns[FRAME_LINE], int64_t)[row],
                         ITEMS(s->columns[FRAME_NAME], int32_t)[row]);
}

static uint32_t frame_number(Snapshot *s, int32_t file, int64_t line, int32_t name)
{
    reserve(s, &s->frame_slots, &s->frame_mask, s->columns[FRAME_FILE].count, frame_hash);
    if (s->failed) return 0;
    uint32_t i = hash_of_frame(file, line, name) & s->frame_mask;
    for (; s->frame_slots[i]; i = (i + 1) & s->frame_mask) {
        uint32_t row = s->frame_slots[i] - 1;
        if (ITEMS(s->columns[FRAME_FILE], int32_t)[row] == file && ITEMS(s->columns[FRAME_LINE], int64_t)[row] == line &&
            ITEMS(s->columns[FRAME_NAME], int32_t)[row] == name)
            return row;
    }
    add(s, FRAME_FILE, file);
    add(s, FRAME_LINE, line);
    add(s, FRAME_NAME, name);
    s->frame_slots[i] = (uint32_t)s->columns[FRAME_FILE].count;
    return (uint32_t)s->columns[FRAME_FILE].count - 1;
}

static uint32_t stack_hash(Snapshot *s, uint32_t row)
{
    const int64_t *offset = ITEMS(s->columns[STACK_OFFSET], int64_t) + row;
    return hash_bytes(ITEMS(s->columns[STACK_FRAME], int32_t) + offset[0], (size_t)(offset[1] - offset[0]) * 4);
}

/* Returns the number of the stack whose frames were appended to STACK_FRAME; an equal stack takes them away again. */
static uint32_t stack_number(Snapshot *s, size_t first)
{
    Array *offsets = s->columns + STACK_OFFSET, *frames = s->columns + STACK_FRAME;
    uint32_t rows = (uint32_t)offsets->count - 1;
    reserve(s, &s->stack_slots, &s->stack_mask, rows, stack_hash);
    if (s->failed) return 0;
    size_t count = frames->count - first;
    const int32_t *added = ITEMS(*frames, int32_t) + first;
    uint32_t i = hash_bytes(added, count * 4) & s->stack_mask;
    for (; s->stack_slots[i]; i = (i + 1) & s->stack_mask) {
        const int64_t *offset = ITEMS(*offsets, int64_t) + s->stack_slots[i] - 1;
        if ((size_t)(offset[1] - offset[0]) == count &&
            !memcmp(ITEMS(*frames, int32_t) + offset[0], added, count * 4)) {
            frames->count = first;
            return s->stack_slots[i] - 1;
        }
    }
    add(s, STACK_OFFSET, (int64_t)frames->count);
    s->stack_slots[i] = rows + 1;
    return rows;
}

/* Returns the value of a key, NULL if it is missing. The last of equal keys counts. */
static const Value *field(const Value *items, size_t count, int64_t key)
{
    const Value *found = NULL;
    for (size_t i = 0; i < count; i += 2)
        if (items[i].v == key) found = items + i + 1;
    return found;
}

/* Returns an integer from -1 to MAX_SIZE, or a default if it is missing. */
static int64_t size_of(Snapshot *s, const Value *value, int64_t missing)
{
    if (!value) return missing;
    if (value->tag != T_INT || value->v < -1 || value->v > MAX_SIZE) s->failed = 1;
    return value->v;
}

static int64_t required(Snapshot *s, const Value *value)
{
    if (!value) s->failed = 1;
    return size_of(s, value, 0);
}

static int64_t text_of(Snapshot *s, const Value *value, int64_t missing)
{
    if (!value) return missing;
    if (value->tag != T_TEXT) s->failed = 1;
    return value->v;
}

static int32_t stream_of(Snapshot *s, const Value *value)
{
    int64_t pointer = value ? value->v : 0;
    int64_t wide = value && value->tag == T_WIDE;
    if (value && value->tag != T_INT && value->tag != T_WIDE) s->failed = 1;
    size_t count = s->columns[STREAM_VALUE].count;
    for (size_t row = count; row-- > 0;)
        if (ITEMS(s->columns[STREAM_VALUE], int64_t)[row] == pointer &&
            ITEMS(s->columns[STREAM_IS_WIDE], uint8_t)[row] == wide)
            return (int32_t)row;
    if (count >= MAX_POOLS) s->failed = 1;
    add(s, STREAM_VALUE, pointer);
    add(s, STREAM_IS_WIDE, wide);
    return (int32_t)count;
}

static int32_t pool_of(Snapshot *s, const Value *value, int32_t missing)
{
    int64_t first = 0, second = 0;
    if (!value && missing < 0) return missing;
    if (value) {
        if (value->tag != T_TUPLE || ITEMS(s->tuples, Triple)[value->v].values[0] != 2) {
            s->failed = 1;
            return 0;
        }
        first = ITEMS(s->tuples, Triple)[value->v].values[1];
        second = ITEMS(s->tuples, Triple)[value->v].values[2];
    }
    size_t count = s->columns[POOL_FIRST].count;
    for (size_t row = count; row-- > 0;)
        if (ITEMS(s->columns[POOL_FIRST], int64_t)[row] == first && ITEMS(s->columns[POOL_SECOND], int64_t)[row] == second)
            return (int32_t)row;
    if (count >= MAX_POOLS) s->failed = 1;
    add(s, POOL_FIRST, first);
    add(s, POOL_SECOND, second);
    return (int32_t)count;
}

/* Returns the row of a list of frames, 0 if it is empty or missing. */
static int32_t stack_of(Snapshot *s, const Value *value)
{
    if (!value || value->tag == T_NONE) return 0;
    if (value->tag != T_LIST) {
        s->failed = 1;
        return 0;
    }
    const Container *list = ITEMS(s->lists, Container) + value->v;
    if (list->kind != EMPTY && list->kind != FRAME) s->failed = 1;
    return list->kind == FRAME ? (int32_t)list->row : 0;
}

static void add_entry(Snapshot *s, const Value *items, size_t count)
{
    const Value *addr = field(items, count, W_ADDR);
    int64_t action = text_of(s, field(items, count, W_ACTION), 0);
    add(s, ENTRY_ACTION, action >= W_ALLOC && action <= W_SNAPSHOT ? action - W_ALLOC + 1 : 0);
    add(s, ENTRY_ADDR, size_of(s, addr ? addr : field(items, count, W_DEVICE_FREE), 0));
    add(s, ENTRY_SIZE, size_of(s, field(items, count, W_SIZE), 0));
    add(s, ENTRY_TIME, size_of(s, field(items, count, W_TIME_US), MISSING));
    add(s, ENTRY_STREAM, stream_of(s, field(items, count, W_STREAM)));
    add(s, ENTRY_POOL, pool_of(s, field(items, count, W_POOL_ID), MISSING));
    add(s, ENTRY_STACK, stack_of(s, field(items, count, W_FRAMES)));
}

static void add_segment(Snapshot *s, const Value *items, size_t count)
{
    const Value *blocks = field(items, count, W_BLOCKS), *grows = field(items, count, W_IS_EXPANDABLE);
    Container list = {0, 0, OTHER};
    if (blocks && blocks->tag == T_LIST) list = ITEMS(s->lists, Container)[blocks->v];
    if (list.kind != BLOCK && list.kind != EMPTY) s->failed = 1;
    if (grows && grows->tag != T_BOOL && grows->tag != T_INT && grows->tag != T_NONE) s->failed = 1;
    add(s, SEGMENT_DEVICE, required(s, field(items, count, W_DEVICE)));
    add(s, SEGMENT_ADDR, required(s, field(items, count, W_ADDRESS)));
    add(s, SEGMENT_SIZE, required(s, field(items, count, W_TOTAL_SIZE)));
    add(s, SEGMENT_STREAM, stream_of(s, field(items, count, W_STREAM)));
    add(s, SEGMENT_POOL, pool_of(s, field(items, count, W_SEGMENT_POOL_ID), 0));
    add(s, SEGMENT_FLAGS, (text_of(s, field(items, count, W_SEGMENT_TYPE), 0) == W_SMALL) |
                              (grows && grows->tag != T_NONE && grows->v ? 2 : 0));
    add(s, SEGMENT_STACK, stack_of(s, field(items, count, W_FRAMES)));
    add(s, SEGMENT_BLOCK, list.kind == BLOCK ? list.row : 0);
    add(s, SEGMENT_BLOCKS, list.kind == BLOCK ? list.count : 0);
}

static void add_block(Snapshot *s, const Value *items, size_t count)
{
    int64_t state = text_of(s, field(items, count, W_STATE), 0), size = required(s, field(items, count, W_SIZE));
    if (state < W_INACTIVE || state > W_AWAITING || field(items, count, W_HISTORY)) s->failed = 1;
    int active = state != W_INACTIVE;
    const Value *frames = field(items, count, W_FRAMES);
    add(s, BLOCK_ADDR, required(s, field(items, count, W_ADDRESS)));
    add(s, BLOCK_SIZE, size);
    add(s, BLOCK_REQUESTED, active ? size_of(s, field(items, count, W_REQUESTED_SIZE), size) : 0);
    add(s, BLOCK_STATE, state == W_AWAITING ? 2 : state - W_INACTIVE);
    add(s, BLOCK_STACK, active ? stack_of(s, frames) : 0);
}

static void add_annotation(Snapshot *s, const Value *items, size_t count)
{
    const Value *name = field(items, count, W_NAME);
    if (!name) s->failed = 1;
    add(s, ANNOTATION_TIME, required(s, field(items, count, W_TIME_US)));
    add(s, ANNOTATION_NAME, text_of(s, name, 0));
    add(s, ANNOTATION_IS_START, text_of(s, field(items, count, W_STAGE), 0) == W_START);
}

/* Fills a dictionary: the keys tell what it describes. */
static void fill_dict(Snapshot *s, const Value *target, const Value *items, size_t count)
{
    if (target->tag != T_DICT || count % 2) {
        s->failed = 1;
        return;
    }
    Container *dict = ITEMS(s->dicts, Container) + target->v;
    if (!count) return;
    if (dict->kind != EMPTY) {
        s->failed = 1;
        return;
    }
    uint64_t keys = 0;
    for (size_t i = 0; i < count; i += 2) {
        if (items[i].tag != T_TEXT) {
            s->failed = 1;
            return;
        }
        if (items[i].v < WORDS) keys |= UINT64_C(1) << items[i].v;
    }
#define HAS(word) (keys >> (word) & 1)
    if (HAS(W_FILENAME)) {
        dict->kind = FRAME;
        int64_t line = size_of(s, field(items, count, W_LINE), 0);
        int32_t file = (int32_t)text_of(s, field(items, count, W_FILENAME), W_UNKNOWN_FILE);
        dict->row = frame_number(s, file, line, (int32_t)text_of(s, field(items, count, W_NAME), W_EMPTY));
    } else if (HAS(W_ACTION)) {
        dict->kind = ENTRY;
        dict->row = (uint32_t)s->columns[ENTRY_ACTION].count;
        add_entry(s, items, count);
    } else if (HAS(W_TOTAL_SIZE)) {
        dict->kind = SEGMENT;
        dict->row = (uint32_t)s->columns[SEGMENT_DEVICE].count;
        add_segment(s, items, count);
    } else if (HAS(W_STATE)) {
        dict->kind = BLOCK;
        dict->row = (uint32_t)s->columns[BLOCK_ADDR].count;
        add_block(s, items, count);
    } else if (HAS(W_STAGE)) {
        dict->kind = ANNOTATION;
        dict->row = (uint32_t)s->columns[ANNOTATION_TIME].count;
        add_annotation(s, items, count);
    } else {
        dict->kind = OTHER;
        dict->row = (uint32_t)s->pairs.count;
        dict->count = (uint32_t)count;
        for (size_t i = 0; i < count; i++) PUSH(s, &s->pairs, Value, items[i]);
    }
}

/* Appends items to a list. All are of one kind, and rows of that kind follow each other. */
static void fill_list(Snapshot *s, const Value *target, const Value *items, size_t count)
{
    if (target->tag != T_LIST) {
        s->failed = 1;
        return;
    }
    if (!count) return;
    Container *list = ITEMS(s->lists, Container) + target->v;
    Kind kind = items[0].tag == T_LIST ? LISTS : items[0].tag != T_DICT ? OTHER : ITEMS(s->dicts, Container)[items[0].v].kind;
    if ((list->kind != EMPTY && (list->kind != kind || kind == FRAME || kind == LISTS)) || kind == EMPTY) {
        s->failed = 1;
        return;
    }
    size_t first = kind == FRAME ? s->columns[STACK_FRAME].count : 0;
    if (list->kind == EMPTY && kind != FRAME && kind != LISTS && kind != OTHER)
        list->row = ITEMS(s->dicts, Container)[items[0].v].row;
    if (kind == LISTS) list->row = (uint32_t)s->list_rows.count;
    list->kind = (uint8_t)kind;
    for (size_t i = 0; i < count && kind != OTHER; i++) {
        if (kind == LISTS) {
            if (items[i].tag != T_LIST) s->failed = 1;
            PUSH(s, &s->list_rows, int32_t, (int32_t)items[i].v);
            continue;
        }
        if (items[i].tag != T_DICT) {
            s->failed = 1;
            return;
        }
        Container dict = ITEMS(s->dicts, Container)[items[i].v];
        if (dict.kind != kind || (kind != FRAME && dict.row != list->row + list->count + i)) {
            s->failed = 1;
            return;
        }
        if (kind == FRAME) add(s, STACK_FRAME, dict.row);
    }
    if (kind == FRAME) {
        uint32_t row = stack_number(s, first);
        if (!s->failed) ITEMS(s->lists, Container)[target->v].row = row;
    }
    else list->count += (uint32_t)count;
}

static void push(Snapshot *s, Tag tag, int64_t v)
{
    if (s->depth == s->stack_capacity) {
        size_t larger = s->stack_capacity * 2;
        Value *moved = larger > MAX_STACK ? NULL : realloc(s->stack, larger * sizeof *moved);
        if (!moved) {
            s->failed = 1;
            return;
        }
        s->stack = moved;
        s->stack_capacity = larger;
    }
    s->stack[s->depth++] = (Value){v, (uint8_t)tag};
}

static const uint8_t *take(Snapshot *s, uint64_t size)
{
    if ((uint64_t)(s->end - s->at) < size) {
        s->failed = 1;
        return NULL;
    }
    s->at += size;
    return s->at - size;
}

static uint64_t number(Snapshot *s, int size)
{
    uint64_t value = 0;
    const uint8_t *bytes = take(s, (uint64_t)size);
    if (bytes) memcpy(&value, bytes, (size_t)size);
    return value;
}

static void push_text(Snapshot *s, uint64_t size)
{
    const uint8_t *text = size > UINT32_MAX ? NULL : take(s, size);
    if (text) push(s, T_TEXT, text_number(s, text, (uint32_t)size));
    else s->failed = 1;
}

static void push_memo(Snapshot *s, uint64_t index)
{
    if (index >= s->memo.count) {
        s->failed = 1;
        return;
    }
    Value value = ITEMS(s->memo, Value)[index];
    push(s, (Tag)value.tag, value.v);
}

static void put_memo(Snapshot *s, uint64_t index)
{
    if (!s->depth || index > s->memo.count) s->failed = 1;
    else if (index == s->memo.count) PUSH(s, &s->memo, Value, s->stack[s->depth - 1]);
    else ITEMS(s->memo, Value)[index] = s->stack[s->depth - 1];
}

static void push_long(Snapshot *s)
{
    uint64_t size = number(s, 1);
    const uint8_t *bytes = size <= 9 ? take(s, size) : NULL;
    if (!bytes) {
        s->failed = 1;
        return;
    }
    uint64_t value = size && size < 9 && bytes[size - 1] >> 7 ? ~UINT64_C(0) : 0;
    memcpy(&value, bytes, (size_t)(size < 8 ? size : 8));
    if (size == 9 && bytes[8]) s->failed = 1;
    push(s, size == 9 ? T_WIDE : T_INT, (int64_t)value);
}

static void push_container(Snapshot *s, Tag tag)
{
    Array *array = tag == T_DICT ? &s->dicts : &s->lists;
    Container empty = {0, 0, EMPTY};
    push(s, tag, (int64_t)array->count);
    PUSH(s, array, Container, empty);
}

static void push_tuple(Snapshot *s, size_t count)
{
    if (s->depth < count) {
        s->failed = 1;
        return;
    }
    Triple tuple = {{(int64_t)count, 0, 0}};
    const Value *items = s->stack + s->depth - count;
    for (size_t i = 0; i < count && i < 2; i++) {
        if (items[i].tag != T_INT) tuple.values[0] = MISSING;
        tuple.values[i + 1] = items[i].v;
    }
    s->depth -= count;
    /* The ids of pools repeat in every entry. */
    if (!s->tuples.count || memcmp(ITEMS(s->tuples, Triple) + s->tuples.count - 1, &tuple, sizeof tuple))
        PUSH(s, &s->tuples, Triple, tuple);
    push(s, T_TUPLE, (int64_t)s->tuples.count - 1);
}

/* Ends the values since the last mark, and returns the first one; `count` is their number. */
static const Value *pop_mark(Snapshot *s, size_t *count)
{
    if (!s->mark_count || s->marks[s->mark_count - 1] > s->depth) {
        s->failed = 1;
        *count = 0;
        return s->stack;
    }
    size_t first = s->marks[--s->mark_count];
    *count = s->depth - first;
    s->depth = first;
    return s->stack + first;
}

static void collect(Snapshot *s, uint8_t opcode)
{
    size_t count;
    const Value *items;
    switch (opcode) {
    case 'u': case 'e':
        items = pop_mark(s, &count);
        if (!s->depth || s->failed) s->failed = 1;
        else if (opcode == 'u') fill_dict(s, s->stack + s->depth - 1, items, count);
        else fill_list(s, s->stack + s->depth - 1, items, count);
        break;
    case 's': case 'a':
        count = opcode == 's' ? 2 : 1;
        if (s->depth <= count) {
            s->failed = 1;
            break;
        }
        s->depth -= count;
        items = s->stack + s->depth;
        if (opcode == 's') fill_dict(s, items - 1, items, count);
        else fill_list(s, items - 1, items, count);
        break;
    default: s->failed = 1;
    }
}

/* Interprets opcodes until STOP. Returns whether the whole text was read. */
static int run(Snapshot *s)
{
    while (s->at < s->end && !s->failed) {
        uint8_t opcode = *s->at++;
        switch (opcode) {
        case 'h': push_memo(s, number(s, 1)); break;
        case 'j': push_memo(s, number(s, 4)); break;
        case 0x94: put_memo(s, s->memo.count); break;
        case 'q': put_memo(s, number(s, 1)); break;
        case 'r': put_memo(s, number(s, 4)); break;
        case '(':
            if (s->mark_count == MAX_MARKS) s->failed = 1;
            else s->marks[s->mark_count++] = s->depth;
            break;
        case 'K': push(s, T_INT, (int64_t)number(s, 1)); break;
        case 'M': push(s, T_INT, (int64_t)number(s, 2)); break;
        case 'J': push(s, T_INT, (int32_t)number(s, 4)); break;
        case 0x8A: push_long(s); break;
        case 0x8C: push_text(s, number(s, 1)); break;
        case 'X': push_text(s, number(s, 4)); break;
        case 0x8D: push_text(s, number(s, 8)); break;
        case '}': push_container(s, T_DICT); break;
        case ']': push_container(s, T_LIST); break;
        case ')': push_tuple(s, 0); break;
        case 0x85: push_tuple(s, 1); break;
        case 0x86: push_tuple(s, 2); break;
        case 0x87: push_tuple(s, 3); break;
        case 'N': push(s, T_NONE, 0); break;
        case 0x88: push(s, T_BOOL, 1); break;
        case 0x89: push(s, T_BOOL, 0); break;
        case 'G': {
            uint64_t bits = 0;
            const uint8_t *bytes = take(s, 8);
            for (int i = 0; bytes && i < 8; i++) bits = bits << 8 | bytes[i];
            push(s, T_FLOAT, (int64_t)bits);
            break;
        }
        case 0x80: take(s, 1); break;
        case 0x95: take(s, 8); break;
        case '.': return s->depth == 1 && !s->failed;
        default: collect(s, opcode);
        }
    }
    return 0;
}

/* Returns the list below a key, with a kind. A missing list is empty. */
static Container list_below(Snapshot *s, const Value *value, Kind kind)
{
    Container list = {0, 0, EMPTY};
    if (!value || value->tag == T_NONE) return list;
    if (value->tag != T_LIST) s->failed = 1;
    else list = ITEMS(s->lists, Container)[value->v];
    if (list.kind != EMPTY && list.kind != kind) s->failed = 1;
    return list;
}

/* Adds the values of settings, and of dictionaries in them. */
static void add_settings(Snapshot *s, const Value *value, int32_t parent, int depth)
{
    if (!value || value->tag == T_NONE) return;
    Container dict = {0, 0, SEGMENT};
    if (value->tag == T_DICT) dict = ITEMS(s->dicts, Container)[value->v];
    if ((dict.kind != OTHER && dict.kind != EMPTY) || depth > 4) {
        s->failed = 1;
        return;
    }
    for (uint32_t i = 0; i < dict.count && !s->failed; i += 2) {
        Value key = ITEMS(s->pairs, Value)[dict.row + i], item = ITEMS(s->pairs, Value)[dict.row + i + 1];
        int32_t row = (int32_t)s->columns[SETTING_KEY].count;
        if (item.tag == T_LIST || item.tag == T_TUPLE || item.tag == T_WIDE) s->failed = 1;
        add(s, SETTING_KEY, key.v);
        add(s, SETTING_TAG, item.tag);
        add(s, SETTING_VALUE, item.v);
        add(s, SETTING_PARENT, parent);
        if (item.tag == T_DICT) add_settings(s, &item, row, depth + 1);
    }
}

static void finish(Snapshot *s)
{
    const Value *root = s->stack, *items = NULL;
    size_t count = 0;
    if (root->tag == T_DICT && ITEMS(s->dicts, Container)[root->v].kind == OTHER) {
        Container dict = ITEMS(s->dicts, Container)[root->v];
        items = ITEMS(s->pairs, Value) + dict.row;
        count = dict.count;
    }
    const Value *segments = items ? field(items, count, W_SEGMENTS) : NULL;
    if (!segments || segments->tag != T_LIST) {
        s->failed = 1;
        return;
    }
    Container list = list_below(s, segments, SEGMENT);
    Container notes = list_below(s, field(items, count, W_EXTERNAL_ANNOTATIONS), ANNOTATION);
    if (list.count != s->columns[SEGMENT_DEVICE].count || notes.count != s->columns[ANNOTATION_TIME].count) s->failed = 1;
    Container traces = list_below(s, field(items, count, W_DEVICE_TRACES), LISTS);
    for (uint32_t i = 0; i < traces.count && !s->failed; i++) {
        Container trace = ITEMS(s->lists, Container)[ITEMS(s->list_rows, int32_t)[traces.row + i]];
        if (trace.kind != EMPTY && trace.kind != ENTRY) s->failed = 1;
        add(s, TRACE_FIRST, trace.row);
        add(s, TRACE_COUNT, trace.count);
    }
    add_settings(s, field(items, count, W_ALLOCATOR_SETTINGS), MISSING, 0);
    for (size_t i = 0; i < s->texts.count && !s->failed; i++) {
        const Span *span = ITEMS(s->texts, Span) + i;
        int is_word = i < WORDS;
        add(s, TEXT_OFFSET, is_word ? MISSING : span->text - s->start);
        add(s, TEXT_SIZE, is_word ? 0 : span->size);
    }
}

API void vp_snapshot_free(Snapshot *s)
{
    if (!s) return;
    Array *arrays[] = {&s->memo, &s->dicts, &s->lists, &s->tuples, &s->texts, &s->pairs, &s->list_rows};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]->items);
    for (size_t i = 0; i < COLUMNS; i++) free(s->columns[i].items);
    free(s->stack);
    free(s->text_slots);
    free(s->frame_slots);
    free(s->stack_slots);
    free(s);
}

/* Reads a pickle. Returns NULL if it has not the form that torch writes, or if memory is exhausted. */
API Snapshot *vp_snapshot_read(const uint8_t *text, int64_t size)
{
    Snapshot *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->start = s->at = text;
    s->end = text + size;
    s->stack_capacity = 4096;
    s->stack = malloc(s->stack_capacity * sizeof *s->stack);
    if (!s->stack) s->failed = 1;
    for (int word = 0; word < WORDS && !s->failed; word++)
        text_number(s, (const uint8_t *)WORD_TEXTS[word], (uint32_t)strlen(WORD_TEXTS[word]));
    add(s, STACK_OFFSET, 0);
    if (!s->failed) stack_number(s, 0); /* stack 0 is empty */
    if (!s->failed && run(s)) finish(s);
    else s->failed = 1;
    if (!s->failed) return s;
    vp_snapshot_free(s);
    return NULL;
}

/* Returns the number of values of a column, and copies them unless `out` is NULL. */
API int64_t vp_snapshot_column(const Snapshot *s, int32_t column, void *out)
{
    const Array *array = s->columns + column;
    if (out && array->count) memcpy(out, array->items, array->count * WIDTHS[column]);
    return (int64_t)array->count;
}

/* Frees the columns of the history after they were copied. */
API void vp_snapshot_drop(Snapshot *s, int32_t column)
{
    free(s->columns[column].items);
    memset(s->columns + column, 0, sizeof *s->columns);
}

/* Returns the text of a number whose TEXT_OFFSET is -1: a word that has a meaning. */
API const char *vp_snapshot_word(int32_t number) { return number < WORDS ? WORD_TEXTS[number] : NULL; }
