/* Python interface of the scanner: readers, their columns, and one dictionary shared by all readers. */
#include "scan.h"
#include <stdlib.h>

/* Distinct words, kinds and threads of several readers. */
typedef struct { Words words, kinds, threads; } Shared;

API void vp_reader_free(Reader *r)
{
    if (!r) return;
    for (uint32_t i = 0; i < MAX_FIELDS + 3; i++) {
        free(r->columns[i].rows);
        free(r->columns[i].values);
        free(r->columns[i].predictor);
    }
    words_close(&r->words);
    words_close(&r->kinds);
    words_close(&r->threads);
    void *parts[] = {r->rules, r->kind, r->thread, r->ts, r->dur, r->word_map, r->kind_map, r->thread_map, r->cats, r};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
}

/*
 * Creates a reader of events. Returns NULL if memory is exhausted.
 *
 * names, types: keys and types of the arguments to store, at most MAX_FIELDS.
 * cats, masks: the categories of which only some arguments are stored, and these arguments, one bit each.
 *
 * The names must outlive the reader.
 */
API Reader *vp_reader_new(const char *const *names, const int32_t *types, int32_t count, const char *const *cats,
                          const uint64_t *masks, int32_t cat_count)
{
    Reader *r = calloc(1, sizeof *r);
    if (!r || count > MAX_FIELDS) {
        free(r);
        return NULL;
    }
    r->field_count = (uint32_t)count;
    r->cat_count = (uint32_t)cat_count;
    r->cats = calloc((size_t)cat_count + 1, sizeof *r->cats);
    int complete = words_open(&r->words) & words_open(&r->kinds) & words_open(&r->threads) & (r->cats != NULL);
    for (int32_t i = 0; complete && i < cat_count; i++)
        r->cats[i] = (Name){cats[i], (uint32_t)strlen(cats[i]), masks[i], TEXT};
    for (int32_t i = 0; i < count + 3; i++) {
        Type type = i < count ? (Type)types[i] : i == count ? ARROW : i == count + 1 ? TEXT : FLOAT;
        if (i < count) r->fields[i] = (Name){names[i], (uint32_t)strlen(names[i]), 0, type};
        r->columns[i].type = type;
        if (i < count && type == TEXT) complete &= (r->columns[i].predictor = calloc(1, sizeof(Predictor))) != NULL;
    }
    for (uint32_t i = 0; i < STATES; i++) r->gaps[i].state = i;
    r->gap_count = STATES;
    if (complete) return r;
    vp_reader_free(r);
    return NULL;
}

/*
 * Appends the events of a text to the reader's columns. Returns the result of the scan, such as WHOLE.
 *
 * text: starts after the `[` of the list or after an event; PADDING zero bytes must follow it.
 * first: whether the text starts after the `[`.
 * out: overwritten with the offset at which the scan stopped, and the first and last row of the text.
 */
API int32_t vp_scan(Reader *r, Text text, int64_t size, int32_t first, int64_t *out)
{
    Text end;
    r->end = text + size;
    r->first = first;
    out[1] = (int64_t)r->rows;
    int32_t state = scan_events(r, text, &end);
    out[0] = end - text;
    out[2] = (int64_t)r->rows;
    return state;
}

/* Returns the end of the last event that is probably followed by another, 0 if there is no such event. */
API int64_t vp_border(Text text, int64_t size)
{
    static const char *const keys[] = {"ph\"", "cat\"", "name\"", "pid\"", "tid\"", "ts\"", "dur\"", "id\"", "args\""};
    for (int64_t i = size - 1; i > 1; i--) {
        if (text[i] != '{') continue;
        Text key = blanks_end(text + i + 1), before = text + i - 1;
        while (before > text && (*before == ' ' || *before == '\n' || *before == '\r' || *before == '\t')) before--;
        if (*before != ',' || *key != '"') continue;
        while (before > text && (*--before == ' ' || *before == '\n' || *before == '\r' || *before == '\t')) continue;
        for (size_t k = 0; *before == '}' && k < sizeof keys / sizeof *keys; k++)
            if (!strncmp((const char *)key + 1, keys[k], strlen(keys[k]))) return before + 1 - text;
    }
    return 0;
}

API void vp_shared_free(Shared *shared)
{
    if (!shared) return;
    words_close(&shared->words);
    words_close(&shared->kinds);
    words_close(&shared->threads);
    free(shared);
}

API Shared *vp_shared_new(void)
{
    Shared *shared = calloc(1, sizeof *shared);
    if (shared && words_open(&shared->words) & words_open(&shared->kinds) & words_open(&shared->threads)) return shared;
    vp_shared_free(shared);
    return NULL;
}

/*
 * Returns the shared number of each word, NULL if memory is exhausted.
 *
 * parts: the shared numbers of the numbers of which the words consist, NULL if they consist of text.
 */
static int32_t *map_words(Words *shared, const Words *words, const int32_t *parts)
{
    int32_t *map = calloc(words->count, sizeof *map);
    for (uint32_t i = 1; map && i < words->count; i++) {
        const Word *word = words->words + i;
        uint8_t text[12 + 16] = {0};
        int32_t part[3];
        Text shared_text = word->text;
        if (parts) {
            memcpy(part, shared_text, word->size);
            for (uint32_t k = 0; k < word->size / 4; k++) part[k] = parts[part[k]];
            memcpy(text, part, word->size);
            shared_text = text;
        }
        if ((map[i] = find_word(shared, shared_text, word->size, 0, parts != NULL)) < 0) {
            free(map);
            return NULL;
        }
    }
    return map;
}

/*
 * Adds the words, kinds and threads of a reader to the shared dictionary. Returns 0 if memory is exhausted.
 *
 * The reader must outlive the dictionary.
 */
API int32_t vp_share(Shared *shared, Reader *r)
{
    r->word_map = map_words(&shared->words, &r->words, NULL);
    if (r->word_map) r->kind_map = map_words(&shared->kinds, &r->kinds, r->word_map);
    if (r->kind_map) r->thread_map = map_words(&shared->threads, &r->threads, r->word_map);
    return r->thread_map != NULL;
}

/* Returns the position of the first value of a column at or after a row. */
static size_t position_of_row(const Column *column, int64_t row)
{
    size_t low = 0, high = column->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((int64_t)column->rows[middle] < row) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Counts the values of each column for rows of a reader: arguments, flows, series and values of samples. */
API void vp_counts(const Reader *r, int64_t first, int64_t last, int64_t *counts)
{
    for (uint32_t i = 0; i < r->field_count + 3; i++)
        counts[i] = (int64_t)(position_of_row(r->columns + i, last) - position_of_row(r->columns + i, first));
}

/* Returns whether two columns with the same number of values have them in the same rows. */
API int32_t vp_same_rows(const Reader *r, int64_t first, int64_t last, int32_t one, int32_t other)
{
    const Column *a = r->columns + one, *b = r->columns + other;
    size_t low = position_of_row(a, first), count = position_of_row(a, last) - low;
    return !count || !memcmp(a->rows + low, b->rows + position_of_row(b, first), count * sizeof *a->rows);
}

/* Rows [first, last) of a reader, and the row of the first one after the rows of all texts are concatenated. */
typedef struct { Reader *reader; int64_t first, last, base; } Rows;

/* Copies kind, thread and times of some rows, with shared numbers. */
API void vp_copy_events(const Rows *parts, int64_t count, int32_t *kind, int32_t *thread, int64_t *ts, int64_t *dur)
{
    for (const Rows *part = parts; part < parts + count; part++) {
        const Reader *r = part->reader;
        size_t bytes = (size_t)(part->last - part->first) * sizeof *ts;
        if (!bytes) continue;
        memcpy(ts + part->base, r->ts + part->first, bytes);
        memcpy(dur + part->base, r->dur + part->first, bytes);
        for (int64_t i = part->first, to = part->base; i < part->last; i++, to++) {
            kind[to] = r->kind_map[r->kind[i]];
            thread[to] = r->thread_map[r->thread[i]];
        }
    }
}

/*
 * Copies the values of one column for some rows, with shared numbers of words, and concatenates the parts.
 *
 * rows: overwritten with the rows that have a value, or NULL.
 * values: overwritten with the values, of the column's type.
 */
API void vp_copy_column(const Rows *parts, int64_t count, int32_t number, int64_t *rows, void *values)
{
    int64_t at = 0;
    for (const Rows *part = parts; part < parts + count; part++) {
        const Column *c = part->reader->columns + number;
        size_t low = position_of_row(c, part->first), high = position_of_row(c, part->last);
        const int32_t *map = part->reader->word_map;
        if (rows)
            for (size_t i = low; i < high; i++)
                rows[at + (int64_t)(i - low)] = (int64_t)c->rows[i] - part->first + part->base;
        if (c->type == TEXT)
            for (size_t i = low; i < high; i++)
                ((int32_t *)values + at)[i - low] = map[((const int32_t *)c->values)[i]];
        else if (c->type == ARROW)
            for (size_t i = low; i < high; i++) {
                int64_t id = ((const int64_t *)c->values)[i];
                ((int64_t *)values + at)[i - low] = id < 0 ? -(int64_t)map[-id] : id;
            }
        else if (high > low)
            memcpy((int64_t *)values + at, (const int64_t *)c->values + low, (high - low) * sizeof(int64_t));
        at += (int64_t)(high - low);
    }
}

/* Frees a copied column. Two copies of all columns would be most of the memory that reading takes. */
API void vp_drop_column(Reader *r, int32_t number)
{
    Column *c = r->columns + number;
    free(c->rows);
    free(c->values);
    c->rows = NULL;
    c->values = NULL;
    c->count = c->capacity = 0;
}

/*
 * Renumbers names in order of their first appearance. Returns the new number of known names.
 *
 * ids: (n,) names; overwritten with their new numbers.
 * number: new number of each name, -1 if it is not known yet; extended.
 * order: the `known` names by new number; extended.
 */
API int64_t vp_renumber(int32_t *ids, int64_t n, int32_t *number, int32_t *order, int64_t known)
{
    for (int64_t i = 0; i < n; i++) {
        int32_t id = ids[i];
        if (number[id] < 0) {
            order[known] = id;
            number[id] = (int32_t)known++;
        }
        ids[i] = number[id];
    }
    return known;
}

/*
 * Copies the words of which each kind (which = 0: ph, cat, name) or thread (1: pid, tid) consists, as shared numbers.
 * Returns the number of kinds or threads.
 */
API int64_t vp_parts(const Shared *shared, int32_t which, int32_t *out)
{
    const Words *words = which ? &shared->threads : &shared->kinds;
    uint32_t parts = which ? 2 : 3;
    for (uint32_t i = 1; out && i < words->count; i++) memcpy(out + (size_t)i * parts, words->words[i].text, parts * 4);
    return words->count;
}

/* Returns the number of words. */
API int64_t vp_word_count(const Shared *shared) { return shared->words.count; }

/*
 * Writes the sizes of words and, unless out is NULL, the words as a JSON list, with an empty string for NONE. Returns the
 * size of the list in bytes.
 */
API int64_t vp_json_words(const Shared *shared, const int32_t *numbers, int64_t count, int64_t *sizes, uint8_t *out)
{
    int64_t total = 1;
    for (int64_t i = 0; i < count; i++) {
        const Word *word = shared->words.words + numbers[i];
        sizes[i] = word->size ? word->size : 2;
        if (out) {
            out[total - 1] = i ? ',' : '[';
            memcpy(out + total, word->size ? word->text : (Text)"\"\"", (size_t)sizes[i]);
        }
        total += sizes[i] + 1;
    }
    if (out && count) out[total - 1] = ']';
    return total;
}
