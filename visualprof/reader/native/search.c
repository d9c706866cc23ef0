/* Positions of times in sorted columns, and sums over nested events. */
#include <stdint.h>

#include "api.h"

static inline int comes_before(int64_t value, int64_t key, int right)
{
    return right ? value <= key : value < key;
}

/*
 * Returns how many values come before a key: those below it, or with `right` also those equal to it.
 *
 * The search starts at a position near the result, because keys are nearly sorted.
 */
static inline int64_t position(const int64_t *sorted, int64_t n, int64_t near, int64_t key, int right)
{
    int64_t low = near, high = near, width = 1;
    while (low > 0 && !comes_before(sorted[low - 1], key, right)) {
        high = low - 1;
        low = low > width ? low - width : 0;
        width *= 2;
    }
    for (width = 1; high < n && comes_before(sorted[high], key, right); width *= 2) {
        low = high + 1;
        high = n - high > width ? high + width : n;
    }
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (comes_before(sorted[middle], key, right)) low = middle + 1;
        else high = middle;
    }
    return low;
}

/*
 * Finds the position of each key in ascending values, like numpy's `searchsorted`.
 *
 * sorted: (n,). keys: (m,). right: whether values equal to a key come before it. out: (m,) written.
 */
API void vp_search(const int64_t *sorted, int64_t n, const int64_t *keys, int64_t m, int32_t right, int64_t *out)
{
    for (int64_t i = 0, at = 0; i < m; i++) out[i] = at = position(sorted, n, at, keys[i], right);
}

/*
 * Sums how much of each window disjoint ascending intervals cover.
 *
 * edges: (2 n,) starts and ends of the intervals. before: (n + 1,) total length of the intervals before each.
 * start, end: (m,) windows. out: (m,) written.
 */
API void vp_covered(const int64_t *edges, const int64_t *before, int64_t n, const int64_t *start, const int64_t *end,
                    int64_t m, int64_t *out)
{
    for (int64_t i = 0, at = 0, until = 0; i < m; i++) {
        at = position(edges, 2 * n, at, start[i], 1);
        until = position(edges, 2 * n, until, end[i], 1);
        out[i] = before[until >> 1] + (until & 1 ? end[i] - edges[until - 1] : 0) - before[at >> 1]
                 - (at & 1 ? start[i] - edges[at - 1] : 0);
    }
}

/*
 * Sums the values of the events directly inside each event.
 *
 * rows: (n,) events, ascending. parent: parent of every event. value: (n,) value of each of the events.
 * sum: (n,) zeros; overwritten. nested: (n,) written: whether the parent is one of the events.
 */
API void vp_child_sums(const int64_t *rows, const int32_t *parent, const int64_t *value, int64_t n, int64_t *sum,
                       uint8_t *nested)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t above = parent[rows[i]], at = i - (rows[i] - above); /* exact where rows are consecutive */
        if (above >= 0 && (at < 0 || rows[at] != above)) at = position(rows, i, at < 0 ? 0 : at, above, 0);
        nested[i] = above >= 0 && at < i && rows[at] == above;
        if (nested[i]) sum[at] += value[i];
    }
}
