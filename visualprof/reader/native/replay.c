/* The replay of a recording, as visualprof/views/measure/replay/graph.py describes it. */
#include <math.h>
#include <stdint.h>

#include "api.h"

/*
 * When each moment comes: the latest of all that it waits for, else as it was measured.
 *
 * first: (n + 1,) slice of each moment's waits. src: (e,) an earlier moment. ns: (e,). dur: (n,) of the moments' work.
 * at: (n,) as measured, written. via: (n,) the wait that each came by, -1 before, written.
 */
API void vp_replay(const int64_t *first, const int32_t *src, const double *ns, const double *dur, int64_t n, double *at,
                   int64_t *via)
{
    for (int64_t node = 0; node < n; node++) {
        double latest = -INFINITY;
        for (int64_t edge = first[node]; edge < first[node + 1]; edge++) {
            double ready = at[src[edge]] + dur[src[edge]] + ns[edge];
            if (ready > latest) {
                latest = ready;
                via[node] = edge;
            }
        }
        if (via[node] >= 0) at[node] = latest;
    }
}

/*
 * When each moment may come at the latest: before all that waits for it.
 *
 * first, src, ns, dur: as above. late: (n,) the latest of the ends, INFINITY of the others, written.
 */
API void vp_latest(const int64_t *first, const int32_t *src, const double *ns, const double *dur, int64_t n,
                   double *late)
{
    for (int64_t node = n - 1; node >= 0; node--) {
        for (int64_t edge = first[node]; edge < first[node + 1]; edge++) {
            double ready = late[node] - ns[edge] - dur[src[edge]];
            if (ready < late[src[edge]]) late[src[edge]] = ready;
        }
    }
}
