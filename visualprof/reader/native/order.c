/* Sort rows by group and time. */
#include <stdint.h>
#include <string.h>

#include "api.h"

/*
 * Sorts rows by group, like `group_rows` of visualprof/reader/trace/order.py.
 *
 * group: (n,). first: (groups + 1,), order: (n,) written. Returns 0, or 1 if a group is out of range.
 */
API int vp_group(const int32_t *group, int64_t n, int64_t groups, int64_t *first, int64_t *order)
{
    memset(first, 0, (size_t)(groups + 1) * sizeof *first);
    for (int64_t i = 0; i < n; i++) {
        if (group[i] < 0 || group[i] >= groups) return 1;
        first[group[i] + 1]++;
    }
    for (int64_t g = 0; g < groups; g++) first[g + 1] += first[g];
    for (int64_t i = 0; i < n; i++) order[first[group[i]]++] = i;
    memmove(first + 1, first, (size_t)groups * sizeof *first); /* each slice has ended where the next one starts */
    first[0] = 0;
    return 0;
}

/* Returns whether row b comes before row a: by start, then the longer one first. */
static int before(const int64_t *ts, const int64_t *dur, int64_t b, int64_t a)
{
    return ts[b] != ts[a] ? ts[b] < ts[a] : dur[b] > dur[a];
}

/* Sorts a few rows by insertion. */
static void sort_few(const int64_t *ts, const int64_t *dur, int64_t *rows, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        int64_t row = rows[i], to = i;
        for (; to && before(ts, dur, row, rows[to - 1]); to--) rows[to] = rows[to - 1];
        rows[to] = row;
    }
}

/* Sorts n rows by merging, in stable order. Halves that are already in order cost one comparison per row. */
static void sort(const int64_t *ts, const int64_t *dur, int64_t *rows, int64_t n, int64_t *spare)
{
    int64_t half = n / 2, a = 0, b = half, to = 0;
    if (n < 32) {
        sort_few(ts, dur, rows, n);
        return;
    }
    sort(ts, dur, rows, half, spare);
    sort(ts, dur, rows + half, n - half, spare);
    while (a < half && !before(ts, dur, rows[half], rows[a])) a++; /* these stay where they are */
    if (a == half) return;
    rows += a, n -= a, half -= a, b -= a;
    memcpy(spare, rows, (size_t)half * sizeof *rows);
    for (a = 0; a < half; to++) rows[to] = b < n && before(ts, dur, rows[b], spare[a]) ? rows[b++] : spare[a++];
}

/*
 * Sorts the rows of each group by (ts, -dur), like `sort_events` of visualprof/reader/trace/order.py.
 *
 * rows: from `vp_group`. spare: work space, half as long as rows.
 */
API void vp_sort(const int64_t *ts, const int64_t *dur, const int64_t *first, int64_t groups, int64_t *rows, int64_t *spare)
{
    for (int64_t g = 0; g < groups; g++) sort(ts, dur, rows + first[g], first[g + 1] - first[g], spare);
}

/*
 * Sorts numbers that are nearly always distinct, without -1, and returns their positions as well.
 *
 * Returns how many numbers there are, or -1 if a number occurs twice.
 *
 * number: (n,) below `limit`. position: (limit,) work space. ascending: (n,), order: (n,) written.
 */
API int64_t vp_sort_unique(const int32_t *number, int64_t n, int64_t limit, int32_t *position, int32_t *ascending,
                           int64_t *order)
{
    int64_t count = 0;
    memset(position, 0xff, (size_t)limit * sizeof *position);
    for (int64_t i = 0; i < n; i++) {
        if (number[i] < 0) continue;
        if (position[number[i]] >= 0) return -1;
        position[number[i]] = (int32_t)i;
    }
    for (int64_t i = 0; i < limit; i++)
        if (position[i] >= 0) {
            ascending[count] = (int32_t)i;
            order[count++] = position[i];
        }
    return count;
}
