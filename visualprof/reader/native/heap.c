/*
 * Lifetimes of the blocks and reserved ranges of an allocator: the backward and the forward pass over a history, as
 * visualprof/reader/memory_snapshot/state.py describes them.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"

enum { ALLOC = 1, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP };
enum { CHUNK = 256, DIVISIONS = 16, BEFORE = -1, NO_ROW = -1, BLOCK_BYTES = 512 };
static const int64_t SMALL_BYTES = 1 << 20, SMALL_SEGMENT_BYTES = 2 << 20, LARGE_PAGE_BYTES = 20 << 20;

typedef struct { int32_t pool, stream; uint8_t small, expandable; } Key;
typedef struct { int64_t addr, size, born, died; Key key; } Range;
typedef struct { int64_t requested, size; int32_t stack; uint8_t pending; } OldBlock; /* size -1: unknown */
typedef struct {
    int64_t addr, size, requested, born, freed, died;
    int32_t pool, stream, stack, free_stack;
    uint8_t small, exact;
} Block;

/* Rows by address, in chunks of ascending addresses: insertions move at most a chunk. */
typedef struct { int64_t keys[CHUNK]; int32_t rows[CHUNK]; int32_t count; } Chunk;
typedef struct { Chunk **chunks; int64_t count, capacity; } Map;
typedef struct { int64_t chunk; int32_t index; } Place;

typedef struct {
    Map ranges, old, live;
    Range *range_rows;
    int64_t range_count, range_capacity;
    OldBlock *old_rows;
    int64_t old_count, old_capacity;
    Block *block_rows;
    int64_t block_count, block_capacity;
    int64_t lost, entries, extra, max_split;
    const int64_t *divisions; /* by the power of two in MiB */
    int failed;
} Heap;

/* Returns the first place with a key of at least `key`. */
static Place lower(const Map *map, int64_t key)
{
    int64_t low = 0, high = map->count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        const Chunk *chunk = map->chunks[middle];
        if (chunk->keys[chunk->count - 1] < key) low = middle + 1;
        else high = middle;
    }
    if (low == map->count) return (Place){low, 0};
    const int64_t *keys = map->chunks[low]->keys;
    int32_t first = 0, end = map->chunks[low]->count;
    while (first < end) {
        int32_t middle = (first + end) / 2;
        if (keys[middle] < key) first = middle + 1;
        else end = middle;
    }
    return (Place){low, first};
}

static int is_end(const Map *map, Place place) { return place.chunk == map->count; }
static int64_t key_at(const Map *map, Place place) { return map->chunks[place.chunk]->keys[place.index]; }
static int32_t row_at(const Map *map, Place place) { return map->chunks[place.chunk]->rows[place.index]; }

/* Returns the row of a key, or NO_ROW. */
static int32_t row_of(const Map *map, int64_t key)
{
    Place place = lower(map, key);
    return is_end(map, place) || key_at(map, place) != key ? NO_ROW : row_at(map, place);
}

/* Returns the row of the last key of at most `key`, or NO_ROW. */
static int32_t row_before(const Map *map, int64_t key)
{
    Place place = lower(map, key);
    if (!is_end(map, place) && key_at(map, place) == key) return row_at(map, place);
    if (place.index > 0) return map->chunks[place.chunk]->rows[place.index - 1];
    if (place.chunk == 0) return NO_ROW;
    const Chunk *chunk = map->chunks[place.chunk - 1];
    return chunk->rows[chunk->count - 1];
}

static int add_chunk(Map *map, int64_t at)
{
    if (map->count == map->capacity) {
        int64_t capacity = map->capacity ? map->capacity * 2 : 16;
        Chunk **chunks = realloc(map->chunks, (size_t)capacity * sizeof *chunks);
        if (!chunks) return 0;
        map->chunks = chunks;
        map->capacity = capacity;
    }
    Chunk *chunk = malloc(sizeof *chunk);
    if (!chunk) return 0;
    chunk->count = 0;
    memmove(map->chunks + at + 1, map->chunks + at, (size_t)(map->count - at) * sizeof *map->chunks);
    map->chunks[at] = chunk;
    map->count++;
    return 1;
}

/* Sets the row of a key. Returns 0 without memory. */
static int set(Map *map, int64_t key, int32_t row)
{
    Place place = lower(map, key);
    if (is_end(map, place)) {
        if (map->count == 0 && !add_chunk(map, 0)) return 0;
        place = (Place){map->count - 1, map->chunks[map->count - 1]->count};
    } else if (key_at(map, place) == key) {
        map->chunks[place.chunk]->rows[place.index] = row;
        return 1;
    }
    Chunk *chunk = map->chunks[place.chunk];
    if (chunk->count == CHUNK) {
        if (!add_chunk(map, place.chunk + 1)) return 0;
        Chunk *half = map->chunks[place.chunk + 1];
        half->count = CHUNK / 2;
        chunk->count = CHUNK - half->count;
        memcpy(half->keys, chunk->keys + chunk->count, (size_t)half->count * sizeof *half->keys);
        memcpy(half->rows, chunk->rows + chunk->count, (size_t)half->count * sizeof *half->rows);
        if (place.index > chunk->count) {
            place.index -= chunk->count;
            chunk = half;
        }
    }
    size_t rest = (size_t)(chunk->count - place.index);
    memmove(chunk->keys + place.index + 1, chunk->keys + place.index, rest * sizeof *chunk->keys);
    memmove(chunk->rows + place.index + 1, chunk->rows + place.index, rest * sizeof *chunk->rows);
    chunk->keys[place.index] = key;
    chunk->rows[place.index] = row;
    chunk->count++;
    return 1;
}

/* Removes a key and returns its row, NO_ROW if it is missing. */
static int32_t take(Map *map, int64_t key)
{
    Place place = lower(map, key);
    if (is_end(map, place) || key_at(map, place) != key) return NO_ROW;
    Chunk *chunk = map->chunks[place.chunk];
    int32_t row = chunk->rows[place.index];
    size_t rest = (size_t)(chunk->count - place.index - 1);
    memmove(chunk->keys + place.index, chunk->keys + place.index + 1, rest * sizeof *chunk->keys);
    memmove(chunk->rows + place.index, chunk->rows + place.index + 1, rest * sizeof *chunk->rows);
    if (--chunk->count == 0) {
        free(chunk);
        map->count--;
        memmove(map->chunks + place.chunk, map->chunks + place.chunk + 1,
                (size_t)(map->count - place.chunk) * sizeof *map->chunks);
    }
    return row;
}

static void clear(Map *map)
{
    for (int64_t i = 0; i < map->count; i++) free(map->chunks[i]);
    free(map->chunks);
    memset(map, 0, sizeof *map);
}

/* Makes room for a row, and returns its number, or NO_ROW without memory. */
static int32_t next_row(Heap *heap, void **rows, int64_t *count, int64_t *capacity, size_t width)
{
    if (*count == *capacity) {
        int64_t larger = *capacity ? *capacity * 2 : 1024;
        void *grown = larger > INT32_MAX ? NULL : realloc(*rows, (size_t)larger * width);
        if (!grown) {
            heap->failed = 1;
            return NO_ROW;
        }
        *rows = grown;
        *capacity = larger;
    }
    return (int32_t)(*count)++;
}

/* Returns the range of an address, or NULL. */
static const Range *range_of(const Heap *heap, int64_t addr)
{
    int32_t row = row_before(&heap->ranges, addr);
    if (row == NO_ROW) return NULL;
    const Range *range = heap->range_rows + row;
    return addr < range->addr + range->size ? range : NULL;
}

static void end_range(Heap *heap, int64_t addr, int64_t event)
{
    int32_t row = take(&heap->ranges, addr);
    if (row != NO_ROW) heap->range_rows[row].died = event;
}

static void begin_range(Heap *heap, int64_t addr, int64_t size, Key key, int64_t event)
{
    int32_t row = next_row(heap, (void **)&heap->range_rows, &heap->range_count, &heap->range_capacity, sizeof(Range));
    if (row == NO_ROW) return;
    end_range(heap, addr, event);
    heap->range_rows[row] = (Range){addr, size, event, heap->entries, key};
    if (!set(&heap->ranges, addr, row)) heap->failed = 1;
}

static int is_same(Key a, Key b)
{
    return a.pool == b.pool && a.stream == b.stream && a.small == b.small && a.expandable == b.expandable;
}

static void join(Heap *heap, int64_t *addr, int64_t *end, Key key, int64_t from, int64_t to, const Range *neighbor,
                 int64_t event)
{
    if (!neighbor || !is_same(neighbor->key, key)) return;
    int64_t start = neighbor->addr, stop = start + neighbor->size;
    if (stop != from && start != to) return;
    if (start < *addr) *addr = start;
    if (stop > *end) *end = stop;
    end_range(heap, start, event);
}

/* Adds a range; it joins neighbors of its pool if it is expandable. */
static void insert_range(Heap *heap, int64_t addr, int64_t size, Key key, int64_t event)
{
    int64_t low = addr, end = addr + size;
    if (key.expandable) {
        Place place = lower(&heap->ranges, addr);
        int32_t after = is_end(&heap->ranges, place) ? NO_ROW : row_at(&heap->ranges, place);
        int32_t before = row_before(&heap->ranges, addr - 1);
        /* The second neighbor is compared with what the first one made of the range. */
        if (before != NO_ROW) join(heap, &low, &end, key, low, end, heap->range_rows + before, event);
        if (after != NO_ROW) join(heap, &low, &end, key, low, end, heap->range_rows + after, event);
    }
    begin_range(heap, low, end - low, key, event);
}

/* Removes a part of a range, and returns whether it was reserved. */
static int cut_range(Heap *heap, int64_t addr, int64_t size, int64_t event)
{
    const Range *reserved = range_of(heap, addr);
    if (!reserved) return 0;
    int64_t start = reserved->addr, end = start + reserved->size;
    Key key = reserved->key;
    end_range(heap, start, event);
    if (addr > start) begin_range(heap, start, addr - start, key, event);
    if (end > addr + size) begin_range(heap, addr + size, end - addr - size, key, event);
    return 1;
}

static int bit_length(int64_t value)
{
    int bits = 0;
    for (; value > 0; value >>= 1) bits++;
    return bits;
}

static int64_t round_up(int64_t size, int64_t step) { return (size / step + (size % step > 0)) * step; }

static int64_t block_size(const Heap *heap, int64_t requested)
{
    int64_t size = requested + heap->extra;
    int power = bit_length(size) - 21;
    int64_t count = heap->divisions[power < 0 ? 0 : power >= DIVISIONS ? DIVISIONS - 1 : power];
    if (count > 1 && size > BLOCK_BYTES * count) {
        int64_t step = INT64_C(1) << (bit_length(size) - 1);
        return step == size ? size : round_up(size, step / count);
    }
    size = size > 0 ? round_up(size, BLOCK_BYTES) : 0;
    return size > BLOCK_BYTES ? size : BLOCK_BYTES;
}

static int is_split(const Heap *heap, int64_t want, int64_t rest, Key key)
{
    if (key.small || key.expandable) return rest >= BLOCK_BYTES;
    return rest > SMALL_BYTES && (heap->max_split < 0 || want < heap->max_split);
}

typedef struct {
    const uint8_t *action;
    const int64_t *addr, *size;
    const int32_t *stream, *pool, *stack;
} History;

/* Returns the pool of a range that an entry reserves or releases. */
static Key pool_of(const Heap *heap, const History *history, int64_t event)
{
    uint8_t action = history->action[event];
    int64_t addr = history->addr[event], size = history->size[event];
    Key key = {history->pool[event], history->stream[event], 0, action == SEGMENT_MAP || action == SEGMENT_UNMAP};
    key.small = key.expandable ? size % LARGE_PAGE_BYTES != 0 : size == SMALL_SEGMENT_BYTES;
    if (!key.expandable) return key;
    int64_t sides[2] = {addr - 1, addr + size};
    for (int side = 0; side < 2; side++) {
        const Range *neighbor = range_of(heap, sides[side]);
        if (neighbor && neighbor->key.expandable && neighbor->key.stream == key.stream) return neighbor->key;
    }
    return key;
}

static void set_old(Heap *heap, int64_t addr, OldBlock block)
{
    int32_t row = next_row(heap, (void **)&heap->old_rows, &heap->old_count, &heap->old_capacity, sizeof(OldBlock));
    if (row == NO_ROW) return;
    heap->old_rows[row] = block;
    if (!set(&heap->old, addr, row)) heap->failed = 1;
}

static void undo(Heap *heap, const History *history)
{
    for (int64_t event = heap->entries - 1; event >= 0 && !heap->failed; event--) {
        int64_t addr = history->addr[event], size = history->size[event];
        OldBlock pending = {size, -1, 0, 1};
        switch (history->action[event]) {
        case ALLOC: heap->lost += take(&heap->old, addr) == NO_ROW; break;
        case FREE_COMPLETED:
            heap->lost += row_of(&heap->old, addr) != NO_ROW;
            set_old(heap, addr, pending);
            break;
        case FREE_REQUESTED: {
            int32_t row = row_of(&heap->old, addr);
            pending.pending = 0;
            if (row == NO_ROW) set_old(heap, addr, pending);
            else heap->old_rows[row].pending = 0;
            break;
        }
        case SEGMENT_ALLOC:
        case SEGMENT_MAP: heap->lost += !cut_range(heap, addr, size, BEFORE); break;
        case SEGMENT_FREE:
        case SEGMENT_UNMAP: insert_range(heap, addr, size, pool_of(heap, history, event), BEFORE); break;
        default: break;
        }
    }
}

static void add_block(Heap *heap, Block block, const Range *reserved)
{
    int32_t row = next_row(heap, (void **)&heap->block_rows, &heap->block_count, &heap->block_capacity, sizeof(Block));
    if (row == NO_ROW) return;
    block.pool = reserved ? reserved->key.pool : -1;
    block.stream = reserved ? reserved->key.stream : 0;
    block.small = reserved && reserved->key.small;
    block.died = heap->entries;
    heap->block_rows[row] = block;
    if (!set(&heap->live, block.addr, row)) heap->failed = 1;
}

/* Starts the forward pass with the blocks that are older than the history. */
static void add_old_blocks(Heap *heap)
{
    for (int64_t c = 0; c < heap->old.count; c++)
        for (int32_t i = 0; i < heap->old.chunks[c]->count && !heap->failed; i++) {
            int64_t addr = heap->old.chunks[c]->keys[i];
            OldBlock old = heap->old_rows[heap->old.chunks[c]->rows[i]];
            const Range *reserved = range_of(heap, addr);
            int64_t size = old.size;
            int exact = 1;
            if (size < 0) {
                size = block_size(heap, old.requested);
                int64_t end = reserved ? reserved->addr + reserved->size : addr + size;
                Place next = lower(&heap->old, addr + 1);
                if (!is_end(&heap->old, next) && key_at(&heap->old, next) < end) end = key_at(&heap->old, next);
                Key key = reserved ? reserved->key : (Key){-1, 0, 1, 0};
                int64_t gap = end - addr - size;
                exact = gap == 0;
                if (gap > 0 && !is_split(heap, size, gap, key)) {
                    size += gap; /* a free range of this size cannot be */
                    exact = 1;
                }
            }
            Block block = {addr, size, old.requested, BEFORE, old.pending ? BEFORE : heap->entries, 0, 0, 0, old.stack, 0,
                           0, (uint8_t)exact};
            add_block(heap, block, reserved);
        }
}

static void release(Heap *heap, int64_t event, int64_t addr, int32_t stack, int is_completed)
{
    int32_t row = row_of(&heap->live, addr);
    if (row == NO_ROW) {
        heap->lost++;
        return;
    }
    Block *block = heap->block_rows + row;
    if (event < block->freed) block->freed = event;
    if (!block->free_stack) block->free_stack = stack;
    if (!is_completed) return;
    block->died = event;
    take(&heap->live, addr);
}

static void allocate(Heap *heap, int64_t event, int64_t addr, int64_t requested, int32_t stack)
{
    const Range *reserved = range_of(heap, addr);
    int64_t size = block_size(heap, requested);
    if (row_of(&heap->live, addr) != NO_ROW) { /* its release is missing */
        heap->lost++;
        release(heap, event, addr, 0, 1);
    }
    if (reserved) {
        int64_t end = reserved->addr + reserved->size;
        Place next = lower(&heap->live, addr);
        if (!is_end(&heap->live, next) && key_at(&heap->live, next) < end) end = key_at(&heap->live, next);
        if (!is_split(heap, size, end - addr - size, reserved->key) && end - addr > size) size = end - addr;
    } else {
        heap->lost++;
    }
    Block block = {addr, size, requested, event, heap->entries, 0, 0, 0, stack, 0, 0, reserved != NULL};
    add_block(heap, block, reserved);
}

static void replay(Heap *heap, const History *history)
{
    for (int64_t event = 0; event < heap->entries && !heap->failed; event++) {
        uint8_t action = history->action[event];
        int64_t addr = history->addr[event], size = history->size[event];
        switch (action) {
        case ALLOC: allocate(heap, event, addr, size, history->stack[event]); break;
        case FREE_REQUESTED:
        case FREE_COMPLETED: release(heap, event, addr, history->stack[event], action == FREE_COMPLETED); break;
        case SEGMENT_ALLOC:
        case SEGMENT_MAP: insert_range(heap, addr, size, pool_of(heap, history, event), event); break;
        case SEGMENT_FREE:
        case SEGMENT_UNMAP: heap->lost += !cut_range(heap, addr, size, event); break;
        default: break;
        }
    }
}

API void vp_heap_free(Heap *heap)
{
    if (!heap) return;
    clear(&heap->ranges);
    clear(&heap->old);
    clear(&heap->live);
    free(heap->range_rows);
    free(heap->old_rows);
    free(heap->block_rows);
    free(heap);
}

/*
 * Computes the lifetimes. Returns NULL without memory.
 *
 * action, addr, size, stream, pool, stack: (n,) entries of the history.
 * segments: (s, 6) final segments: address, size, pool, stream, small, expandable.
 * blocks: (b, 5) live blocks of the final state: address, requested bytes, size, pending, stack.
 * rounding: (18,) bytes added to a request, limit of splitting (-1: none), divisions by the power of two in MiB.
 */
API Heap *vp_heap_lifetimes(const uint8_t *action, const int64_t *addr, const int64_t *size, const int32_t *stream,
                            const int32_t *pool, const int32_t *stack, int64_t n, const int64_t *segments, int64_t s,
                            const int64_t *blocks, int64_t b, const int64_t *rounding)
{
    Heap *heap = calloc(1, sizeof *heap);
    if (!heap) return NULL;
    History history = {action, addr, size, stream, pool, stack};
    heap->entries = n;
    heap->extra = rounding[0];
    heap->max_split = rounding[1];
    heap->divisions = rounding + 2;
    for (int64_t i = 0; i < s && !heap->failed; i++) {
        const int64_t *row = segments + 6 * i;
        Key key = {(int32_t)row[2], (int32_t)row[3], (uint8_t)row[4], (uint8_t)row[5]};
        insert_range(heap, row[0], row[1], key, BEFORE);
    }
    for (int64_t i = 0; i < b && !heap->failed; i++) {
        const int64_t *row = blocks + 5 * i;
        set_old(heap, row[0], (OldBlock){row[1], row[2], (int32_t)row[4], row[3] != 0});
    }
    undo(heap, &history);
    add_old_blocks(heap);
    replay(heap, &history);
    clear(&heap->old);
    if (!heap->failed) return heap;
    vp_heap_free(heap);
    return NULL;
}

/* Returns the number of blocks, of ranges, or of entries that contradict the state. */
API int64_t vp_heap_count(const Heap *heap, int32_t what)
{
    return what == 0 ? heap->block_count : what == 1 ? heap->range_count : heap->lost;
}

/* Copies a column of blocks; one of the wide columns, of the narrow ones, or of the flags. */
API void vp_heap_blocks(const Heap *heap, int64_t *const wide[6], int32_t *const narrow[4], uint8_t *const flags[2])
{
    for (int64_t i = 0; i < heap->block_count; i++) {
        const Block *block = heap->block_rows + i;
        const int64_t values[6] = {block->addr, block->size, block->requested, block->born, block->freed, block->died};
        const int32_t rows[4] = {block->pool, block->stream, block->stack, block->free_stack};
        for (int column = 0; column < 6; column++) wide[column][i] = values[column];
        for (int column = 0; column < 4; column++) narrow[column][i] = rows[column];
        flags[0][i] = block->small;
        flags[1][i] = block->exact;
    }
}

/* Copies the columns of ranges. */
API void vp_heap_ranges(const Heap *heap, int64_t *const wide[4], int32_t *const narrow[2], uint8_t *const flags[2])
{
    for (int64_t i = 0; i < heap->range_count; i++) {
        const Range *range = heap->range_rows + i;
        const int64_t values[4] = {range->addr, range->size, range->born, range->died};
        for (int column = 0; column < 4; column++) wide[column][i] = values[column];
        narrow[0][i] = range->key.pool;
        narrow[1][i] = range->key.stream;
        flags[0][i] = range->key.small;
        flags[1][i] = range->key.expandable;
    }
}
