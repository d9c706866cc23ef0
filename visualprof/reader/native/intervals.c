/* Sets of half-open intervals, as visualprof/views/measure/columns/intervals.py describes them. */
#include <stdint.h>

#include "api.h"

/* Adds an interval to `count` others, merging it with the last one if they touch. Returns the new count. */
static int64_t add(int64_t *spans, int64_t count, int64_t start, int64_t end)
{
    int64_t *next = spans + 2 * count;
    if (end <= start) return count;
    if (count && start >= next[-2] && start <= next[-1]) {
        if (end > next[-1]) next[-1] = end;
        return count;
    }
    next[0] = start;
    next[1] = end;
    return count + 1;
}

/*
 * Merges consecutive intervals; for ascending intervals that is their union. Returns the number of results.
 *
 * start, end: (n,). spans: (n, 2) written.
 */
API int64_t vp_join(const int64_t *start, const int64_t *end, int64_t n, int64_t *spans)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count = add(spans, count, start[i], end[i]);
    return count;
}

/*
 * Merges intervals within groups.
 *
 * group: (n,) group of each interval.
 * first: (groups,) position of the first result of each group in spans.
 * count: (groups,) zeros; overwritten with the number of results of each group.
 */
API void vp_join_groups(const int64_t *group, const int64_t *start, const int64_t *end, int64_t n, const int64_t *first,
                        int64_t *count, int64_t *spans)
{
    for (int64_t i = 0; i < n; i++)
        count[group[i]] = add(spans + 2 * first[group[i]], count[group[i]], start[i], end[i]);
}

/* Returns the end of the run of ascending starts that begins at an interval. */
static int64_t run_end(const int64_t *spans, int64_t first, int64_t n)
{
    int64_t at = first + 1;
    while (at < n && spans[2 * at] >= spans[2 * at - 2]) at++;
    return at;
}

/* Merges the runs [first, middle) and [middle, last) by their starts. */
static void merge(const int64_t *from, int64_t first, int64_t middle, int64_t last, int64_t *to)
{
    for (int64_t i = first, j = middle, at = first; at < last; at++) {
        int64_t next = j == last || (i < middle && from[2 * i] <= from[2 * j]) ? i++ : j++;
        to[2 * at] = from[2 * next];
        to[2 * at + 1] = from[2 * next + 1];
    }
}

/*
 * Replaces intervals in any order by their union. Returns the number of its intervals.
 *
 * This is a merge sort of ascending runs; there are few of them, one per track.
 *
 * spans: (n, 2). spare: (n, 2) work space.
 */
API int64_t vp_union(int64_t *spans, int64_t n, int64_t *spare)
{
    int64_t *from = spans, *to = spare, count = 0;
    while (run_end(from, 0, n) < n) {
        for (int64_t first = 0, last; first < n; first = last) {
            int64_t middle = run_end(from, first, n);
            last = middle < n ? run_end(from, middle, n) : n;
            merge(from, first, middle, last, to);
        }
        int64_t *sorted = to;
        to = from;
        from = sorted;
    }
    for (int64_t i = 0; i < n; i++) count = add(spans, count, from[2 * i], from[2 * i + 1]);
    return count;
}

/*
 * Intersects two sets of ascending, disjoint intervals. Returns the number of results.
 *
 * a: (n, 2). b: (m, 2). shared: (n + m, 2) written.
 */
API int64_t vp_overlaps(const int64_t *a, int64_t n, const int64_t *b, int64_t m, int64_t *shared)
{
    int64_t *next = shared;
    for (int64_t i = 0, j = 0; i < n && j < m;) {
        next[0] = a[2 * i] > b[2 * j] ? a[2 * i] : b[2 * j];
        next[1] = a[2 * i + 1] < b[2 * j + 1] ? a[2 * i + 1] : b[2 * j + 1];
        if (next[0] < next[1]) next += 2;
        if (a[2 * i + 1] < b[2 * j + 1]) i++;
        else j++;
    }
    return (next - shared) / 2;
}
