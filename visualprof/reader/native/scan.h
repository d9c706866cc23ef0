/* Declarations shared by the parts of the scanner, which converts Chrome trace events from JSON text to columns. */
#ifndef VP_SCAN_H
#define VP_SCAN_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "api.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "words of eight bytes are read as little-endian numbers; without this library Python reads the files"
#endif
#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#define VP_SSE2 1
#endif
#if defined(_MSC_VER)
#include <intrin.h>
#define LIKELY(x) (x)
#else
#define LIKELY(x) __builtin_expect(!!(x), 1)
#endif

enum { PADDING = 64 };      /* zero bytes that must follow a text: comparisons may read beyond its end */
enum { MAX_FIELDS = 64 };   /* maximum number of arguments, one bit each */
enum { GAP_BYTES = 64, GAPS = 4096, GUESSES = 4096 };
enum { NONE = 0 };          /* the word of a missing value or null */
#define NO_INT (-((int64_t)1 << 62))
#define MAX_ID ((int64_t)1 << 62)
#define MAX_NS ((uint64_t)1 << 62)

typedef const uint8_t *Text;

/* A distinct JSON value as text, with the last kind and thread that was looked up with it. */
typedef struct {
    Text text;
    uint64_t kind_key, thread_key; /* the other values of these lookups */
    uint32_t size, hash;
    int32_t kind, thread;
    uint8_t bare;    /* a number or literal: equal to another text only if a delimiter follows there */
    uint8_t invalid; /* not valid UTF-8 */
} Word;

typedef struct Block { struct Block *before; } Block;

/* Distinct texts by number, in order of appearance; 0 is the empty text. */
typedef struct {
    Word *words;
    uint32_t *slots;
    uint32_t count, capacity, mask;
    Block *blocks;
    uint8_t *unused; /* unused bytes of the newest block */
    size_t unused_bytes;
} Words;

/* Predicts the next word of one field from its previous words, because profiles are repetitive. */
typedef struct { uint32_t history; int32_t guess[GUESSES]; } Predictor;

typedef enum { INTEGER, FLOAT, TEXT, TIME, ARROW } Type;

/*
 * Values of some rows; the rows are ascending.
 *
 * The values are double, int32 numbers of words, or int64. Times are ns. The id of an arrow is stored itself if it is a
 * natural number below MAX_ID, with or without quotes; otherwise minus the number of its word is stored.
 */
typedef struct {
    uint32_t *rows;
    void *values;
    size_t count, capacity;
    Type type;
    Predictor *predictor;
} Column;

/* The text between two scalar values, such as `,\n "tid": ` or `}}, {"ph": `, and its meaning. */
typedef struct {
    uint8_t text[GAP_BYTES + 16];
    uint32_t size;
    int32_t key;             /* key of the value that follows */
    uint32_t state;          /* state in which that value is read */
    uint32_t ends;           /* number of events that end in the gap; all but the first are empty */
    uint32_t closed, opened; /* offsets after the last end of an event, and after the `{` of an event (0 without one) */
    uint32_t child, sibling; /* the first gap seen after this one; the next gap seen after the same gap */
    uint32_t next;           /* the gap whose children are compared next */
} Gap;

/* Keys that are not the number of an argument. */
enum { SKIPPED = -1, PH = -2, CAT = -3, NAME = -4, PID = -5, TID = -6, TS = -7, DUR = -8, ID = -9, ARGS = -10, LAST = -11 };
enum { BETWEEN, IN_EVENT, IN_ARGS, AFTER_ARGS, STATES };

typedef struct { const char *name; uint32_t size; uint64_t mask; Type type; } Name;

/* The parts of events of one kind that are stored. */
typedef struct { uint64_t fields; uint8_t with_id, counter; } KindRules;

/* The event that is being read. */
typedef struct {
    int32_t ph, cat, name, pid, tid;
    int64_t id, ts, dur;
    uint64_t seen; /* arguments that are already in the columns */
    Text start;
} Event;

/* The columns of all texts that one thread scanned. */
typedef struct {
    Name fields[MAX_FIELDS], *cats;
    uint32_t field_count, cat_count;
    Words words, kinds, threads;
    KindRules *rules;
    size_t rules_capacity;
    Predictor predictors[5]; /* PH to TID */
    Column columns[MAX_FIELDS + 3]; /* the arguments; flows; series and values of samples */
    int32_t *kind, *thread;
    int64_t *ts, *dur;
    size_t rows, capacity;
    Gap gaps[GAPS];
    uint32_t gap_count, roots[STATES][MAX_FIELDS + 12];
    Text end, fault, last; /* end of the text; position of an error; end of the list or the text */
    int out_of_memory, first;
    int32_t *word_map, *kind_map, *thread_map; /* numbers in the shared dictionaries */
} Reader;

/* Result of a scan: the whole text was read; the list ended; the last event has no end; only Python can read the text;
 * memory is exhausted. */
enum { WHOLE, ENDED, OPEN, REFUSED, MEMORY };

int words_open(Words *words);
void words_close(Words *words);
int32_t find_word(Words *words, Text text, uint32_t size, int bare, int copied);
int ensure_capacity(void **array, size_t *capacity, size_t count, size_t size);

Text string_end(Reader *r, Text p);
Text value_end(Reader *r, Text p, int depth);
Text time_at(Reader *r, Text p, int64_t *ns);
Text duration_at(Reader *r, Text p, int64_t *ns);
Text integer_at(Reader *r, Text p, int64_t *value);
Text float_at(Reader *r, Text p, double *value);
Text gap_end(Reader *r, Text p, uint32_t state, Gap *gap);
int scan_events(Reader *r, Text p, Text *done);
int valid_utf8(Text p, uint32_t size);

/* Records the position of an unexpected text. The scanner rejects the text, and Python reads it instead. */
static inline Text fault(Reader *r, Text at)
{
    r->fault = at;
    return NULL;
}

static inline uint64_t eight_bytes(Text p)
{
    uint64_t x;
    memcpy(&x, p, 8);
    return x;
}

static inline int is_digit(uint8_t c) { return (unsigned)(c - '0') < 10; }

static inline Text blanks_end(Text p)
{
    while (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t') p++;
    return p;
}

static inline int is_delimiter(uint8_t c)
{
    return c == ',' || c == '}' || c == ']' || c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Returns whether n bytes are equal. Reads up to 16 bytes beyond them. */
static inline int same(Text a, Text b, uint32_t n)
{
#ifdef VP_SSE2
    for (;; a += 16, b += 16, n -= 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)a), y = _mm_loadu_si128((const __m128i *)b);
        uint32_t equal = (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(x, y));
        if (n < 16) return (~equal & ((1u << n) - 1)) == 0;
        if (equal != 0xffff) return 0;
    }
#else
    for (; n >= 8; a += 8, b += 8, n -= 8)
        if (eight_bytes(a) != eight_bytes(b)) return 0;
    return n == 0 || ((eight_bytes(a) ^ eight_bytes(b)) & (~(uint64_t)0 >> (64 - 8 * n))) == 0;
#endif
}
#endif
