/* Levels of detail of a timeline, as visualprof/reader/trace/pyramid.py describes them. */
#include <stdint.h>

#include "api.h"

/* Returns the bit length of a number. */
static int bit_length(uint64_t number)
{
    int count = 0;
    for (int half = 32; half; half >>= 1)
        if (number >> half) number >>= half, count += half;
    return count + (number != 0);
}

/*
 * Computes for each row the exponent from which it shares the bucket of its predecessor on the lane, 65 for the first
 * row of a lane.
 *
 * ts: (n,) ns.
 * order: (n,) rows by lane.
 * first: (lanes + 1,).
 * exponents: (n,) written.
 * counts: (66,) number of rows per exponent, written.
 */
API void vp_bucket_exponents(const int64_t *ts, int64_t origin, const int32_t *order, const int64_t *first,
                              int64_t lanes, uint8_t *exponents, int64_t *counts)
{
    for (int i = 0; i <= 65; i++) counts[i] = 0;
    for (int64_t lane = 0; lane < lanes; lane++)
        for (int64_t i = first[lane]; i < first[lane + 1]; i++) {
            uint64_t start = (uint64_t)(ts[order[i]] - origin);
            exponents[i] = i == first[lane] ? 65 : (uint8_t)bit_length(start ^ (uint64_t)(ts[order[i - 1]] - origin));
            counts[exponents[i]]++;
        }
}

/* The entries of all levels, concatenated. */
typedef struct {
    int64_t *start, *end;
    int32_t *count, *longest;
} Entries;

/* Adds `count` events to entry `at`. They end at `end` at the latest, and `longest` is the longest of them. */
static void add(Entries to, int64_t at, int64_t end, int32_t count, int32_t longest, const int64_t *dur)
{
    if (!to.count[at] || dur[longest] > dur[to.longest[at]]) to.longest[at] = longest;
    if (!to.count[at] || end > to.end[at]) to.end[at] = end;
    to.count[at] += count;
}

/* Adds the last entry of each of the `levels` lowest levels to the last entry of the level above. */
static void add_to_levels_above(Entries to, const int64_t *next, int64_t levels, int64_t all, const int64_t *dur)
{
    for (int64_t k = 0; k < levels && k + 1 < all; k++) {
        int64_t at = next[k] - 1;
        add(to, next[k + 1] - 1, to.end[at], to.count[at], to.longest[at], dur);
    }
}

/*
 * Fills the entries of the levels that are stored.
 *
 * ts, exponents, order, first: as for `vp_bucket_exponents`.
 * end, dur: (n,) ns.
 * exponent: (levels,) exponent of each level.
 * next: (levels,) position of the first entry of each level; overwritten with the end of each level.
 * start, end_of, count, longest: columns of the entries, written; count must hold zeros.
 * slices: (levels, lanes + 1) entries of each lane, written.
 */
API void vp_levels(const int64_t *ts, const int64_t *end, const int64_t *dur, const uint8_t *exponents, const int32_t *order,
                   const int64_t *first, int64_t lanes, int64_t origin, const int64_t *exponent, int64_t levels,
                   int64_t *next, int64_t *start, int64_t *end_of, int32_t *count, int32_t *longest, int64_t *slices)
{
    Entries to = {start, end_of, count, longest};
    for (int64_t lane = 0; lane <= lanes; lane++) {
        for (int64_t k = 0; k < levels; k++) slices[k * (lanes + 1) + lane] = next[k];
        if (lane == lanes || !levels || first[lane] == first[lane + 1]) continue;
        for (int64_t i = first[lane]; i < first[lane + 1]; i++) {
            int64_t row = order[i], opened = 0;
            while (opened < levels && exponent[opened] < exponents[i]) opened++;
            if (i > first[lane]) add_to_levels_above(to, next, opened, levels, dur);
            for (int64_t k = 0; k < opened; k++) start[next[k]++] = ts[row] - origin;
            add(to, next[0] - 1, end[row] - origin, 1, (int32_t)row, dur);
        }
        add_to_levels_above(to, next, levels, levels, dur);
    }
}
