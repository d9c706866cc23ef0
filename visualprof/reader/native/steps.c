/* The step that holds each event. */
#include <stdint.h>

#include "api.h"

/* How many of the ascending `start` are not after a time. */
static int64_t begun(const int64_t *start, int64_t steps, int64_t time)
{
    int64_t low = 0, high = steps;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (start[middle] <= time) low = middle + 1;
        else high = middle;
    }
    return low;
}

/*
 * Of each event the last step that has begun, if it has not ended, else -1, as `_held` of
 * visualprof/reader/trace/step_attribution.py describes. ts: (n,), start, end: (steps,) ns, start ascends. held: (n,) written.
 */
API void vp_held(const int64_t *ts, int64_t n, const int64_t *start, const int64_t *end, int64_t steps, int32_t *held)
{
    int64_t at = 0; /* so many have begun; nearly always still so at the next event */
    for (int64_t i = 0; i < n; i++) {
        if ((at && start[at - 1] > ts[i]) || (at < steps && start[at] <= ts[i])) at = begun(start, steps, ts[i]);
        held[i] = at && ts[i] < end[at - 1] ? (int32_t)(at - 1) : -1;
    }
}
