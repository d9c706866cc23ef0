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
