/* Chrome trace events: JSON text to columns. What the parts of the scanner share. */
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

enum { PADDING = 64 };      /* zero bytes that must stand behind a text: every comparison may read as far */
enum { FIELDS = 64 };       /* at most as many arguments, one bit each */
enum { GAP_BYTES = 64, GAPS = 4096, HABITS = 4096 };
enum { NONE = 0 };          /* the word of what is absent or null */
#define NO_INT (-((int64_t)1 << 62))
#define MOST_ID INT64_C(1000000000000000000)
#define MOST_NS ((uint64_t)1 << 62)

typedef const uint8_t *Text;

/* A distinct JSON value, as it is written. kind, place: what it last became together with kind_key, place_key. */
typedef struct {
    Text text;
    uint64_t kind_key, place_key;
    uint32_t size, hash;
    int32_t kind, place;
    uint8_t bare;   /* a number or literal: the same only where a delimiter follows */
    uint8_t broken; /* no UTF-8 */
} Word;

typedef struct Block { struct Block *before; } Block;

/* Distinct texts by number, in order of appearance; 0 is the empty one. */
typedef struct {
    Word *words;
    uint32_t *slots;
    uint32_t count, capacity, mask;
    Block *blocks;
    uint8_t *room;
    size_t left;
} Words;

/* Which word followed which in one place of the events: profiles repeat themselves. */
typedef struct { uint32_t history; int32_t guess[HABITS]; } Habit;

typedef enum { INTEGER, FLOAT, TEXT, TIME, ARROW } Type;

/*
 * Values of some rows, ascending. values: double, int32 numbers of words, or int64: times are ns, ids of arrows themselves
 * where they are natural numbers below MOST_ID, with quotes or without, else less than 0: minus the number of their word.
 */
typedef struct {
    uint32_t *rows;
    void *values;
    size_t count, capacity;
    Type type;
    Habit *habit;
} Column;

/* What stands between two scalar values, such as `,\n "tid": ` or `}}, {"ph": `, and what it means. */
typedef struct {
    uint8_t text[GAP_BYTES + 16];
    uint32_t size;
    int32_t key;             /* of the value behind it */
    uint32_t state;          /* where that value stands */
    uint32_t ends;           /* events that end in it; all but the first are empty */
    uint32_t closed, opened; /* places in it: behind the last end of an event; behind the `{` of one, 0 without one */
    uint32_t child, other;   /* the first gap seen after this one; the next that was seen in the same place */
    uint32_t into;           /* whose children come next */
} Gap;

/* Values of keys that are no argument's number. */
enum { SKIPPED = -1, PH = -2, CAT = -3, NAME = -4, PID = -5, TID = -6, TS = -7, DUR = -8, ID = -9, ARGS = -10, LAST = -11 };
enum { BETWEEN, IN_EVENT, IN_ARGS, BEHIND_ARGS, STATES };

typedef struct { const char *name; uint32_t size; uint64_t mask; Type type; } Name;

/* What the events of a kind may have. */
typedef struct { uint64_t fields; uint8_t with_id, counter; } Rights;

/* The event that is being read. */
typedef struct {
    int32_t ph, cat, name, pid, tid;
    int64_t id, ts, dur;
    uint64_t seen; /* arguments in the columns */
    Text start;
} Event;

/* One thread's columns of all texts that it scanned. */
typedef struct {
    Name fields[FIELDS], *cats;
    uint32_t field_count, cat_count;
    Words words, kinds, places;
    Rights *rights;
    size_t rights_capacity;
    Habit habits[5]; /* PH to TID */
    Column columns[FIELDS + 3]; /* the arguments; flows; series and values of samples */
    int32_t *kind, *place;
    int64_t *ts, *dur;
    size_t rows, capacity;
    Gap gaps[GAPS];
    uint32_t gap_count, roots[STATES][FIELDS + 12];
    Text end, fault, last; /* of the text; where it could not be read; where the list or the text ended */
    int short_of_memory, first;
    int32_t *word_map, *kind_map, *place_map; /* numbers in the dictionaries of all threads */
} Reader;

/* What became of a text: all rows of it; the list ended in it; an event has no end; another reader is needed. */
enum { WHOLE, ENDED, OPEN, REFUSED, MEMORY };

int words_open(Words *words);
void words_close(Words *words);
int32_t word_of(Words *words, Text text, uint32_t size, int bare, int copied);
int grown(void **array, size_t *capacity, size_t count, size_t size);

Text string_end(Reader *r, Text p);
Text value_end(Reader *r, Text p, int depth);
Text time_at(Reader *r, Text p, int64_t *ns);
Text lasting_at(Reader *r, Text p, int64_t *ns);
Text integer_at(Reader *r, Text p, int64_t *value);
Text float_at(Reader *r, Text p, double *value);
Text gap_end(Reader *r, Text p, uint32_t state, Gap *gap);
int scan_events(Reader *r, Text p, Text *done);
int valid_utf8(Text p, uint32_t size);

/* Where the text is not what is expected: it is refused, and read elsewhere. */
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

static inline int delimits(uint8_t c)
{
    return c == ',' || c == '}' || c == ']' || c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Are n bytes equal? Reads up to 16 bytes behind them. */
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
