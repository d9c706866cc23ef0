/*
 * Scans mutated texts, to be run with sanitizers: `fuzz_scan COUNT SEED FILE...`.
 *
 * Each text is truncated, or some bits or JSON punctuation are changed, and two readers scan it in pieces. Whatever the
 * result, rows must not go backwards and nothing beyond the text may be read.
 */
#include "../visualprof/reader/native/scan.h"
#include <stdio.h>
#include <stdlib.h>

Reader *vp_reader_new(const char *const *, const int32_t *, int32_t, const char *const *, const uint64_t *, int32_t);
void vp_reader_free(Reader *);
int32_t vp_scan(Reader *, Text, int64_t, int32_t, int64_t *);
int64_t vp_border(Text, int64_t);
typedef struct Shared Shared;
Shared *vp_shared_new(void);
void vp_shared_free(Shared *);
int32_t vp_share(Shared *, Reader *);

static const char *const names[] = {"correlation", "External id", "est. achieved occupancy %", "Input Dims", "grid", "name", "start_time"};
static const int32_t types[] = {INTEGER, INTEGER, FLOAT, TEXT, TEXT, TEXT, TIME};
static const char *const cats[] = {"cpu_op", "kernel"};
static const uint64_t masks[] = {10, 119};
static const char marks[] = "{}[]\",:\\0123456789.eE+-unltrfa \n\xc3\xff";

static uint8_t *text_of(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) exit(2);
    *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *text = malloc(*size + 1);
    if (!text || fread(text, 1, *size, file) != *size) exit(2);
    text[*size] = 0;
    fclose(file);
    return text;
}

static void mutate(uint8_t *text, size_t *size)
{
    for (int times = rand() % 4; times >= 0 && *size > 1; times--) {
        size_t at = (size_t)rand() % *size;
        switch (rand() % 4) {
        case 0: *size = at + 1; break;
        case 1: text[at] ^= (uint8_t)(1 << rand() % 8); break;
        default: text[at] = (uint8_t)marks[(size_t)rand() % (sizeof marks - 1)];
        }
    }
}

/* Scans a text, each part of it in memory of its own size, so that a sanitizer detects reads beyond it. */
static void scan(Reader *reader, const uint8_t *text, size_t size)
{
    size_t piece = (size_t)(rand() % 3 ? rand() % 3000 + 50 : (int)size + 1), rows = reader->rows;
    for (size_t at = 0; at < size;) {
        size_t n = size - at < piece ? size - at : piece;
        uint8_t *part = calloc(n + PADDING, 1);
        if (!part) exit(2);
        memcpy(part, text + at, n);
        int64_t out[3], cut = vp_border(part, (int64_t)n);
        if (cut < 0 || cut > (int64_t)n) abort();
        if (cut > 0) memset(part + cut, 0, n - (size_t)cut);
        n = cut > 0 ? (size_t)cut : n;
        int32_t state = vp_scan(reader, part, (int64_t)n, at == 0, out);
        if (state < WHOLE || state > MEMORY || out[0] < 0 || out[0] > (int64_t)n) abort();
        if (out[1] != (int64_t)rows || out[2] < out[1]) abort();
        for (uint32_t i = 0; i < reader->field_count + 3; i++) {
            const Column *c = reader->columns + i;
            if (c->count && c->rows[c->count - 1] >= reader->rows) abort(); /* belongs to an event that is not a row */
        }
        rows = (size_t)out[2];
        free(part);
        at += n;
    }
}

int main(int count, char **arguments)
{
    if (count < 4) return 2;
    size_t scanned = 0;
    srand((unsigned)atoi(arguments[2]));
    for (int i = 0, times = atoi(arguments[1]); i < times; i++) {
        size_t size;
        uint8_t *text = text_of(arguments[3 + rand() % (count - 3)], &size);
        Reader *readers[2];
        Shared *shared = vp_shared_new();
        for (int k = 0; k < 2; k++) {
            const char *key = strstr((const char *)text, "\"traceEvents\""), *list = key ? strchr(key, '[') : NULL;
            size_t before = list ? (size_t)(list + 1 - (const char *)text) : 1;
            if (!(readers[k] = vp_reader_new(names, types, 7, cats, masks, 2))) return 2;
            mutate(text, &size);
            before = before < size ? before : 0;
            scan(readers[k], text + before, size - before);
            scan(readers[k], text + before, size - before); /* now gaps and words are recognized */
            if (!shared || !vp_share(shared, readers[k])) return 2;
        }
        vp_shared_free(shared);
        for (int k = 0; k < 2; k++) scanned += readers[k]->rows, vp_reader_free(readers[k]);
        free(text);
    }
    printf("%s texts, %zu rows\n", arguments[1], scanned);
    return 0;
}
