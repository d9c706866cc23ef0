/* The step that contains each event. */
#include <stdint.h>

#include "api.h"

/* Returns how many of the ascending starts are not after a time. */
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
 * Finds for each event the last step that has started, -1 if it has ended, like `_steps_at_times` of
 * visualprof/reader/trace/step_attribution.py. ts: (n,). start, end: (steps,) ns, start ascending. held: (n,) output.
 */
API void vp_held(const int64_t *ts, int64_t n, const int64_t *start, const int64_t *end, int64_t steps, int32_t *held)
{
    int64_t at = 0; /* so many have begun; nearly always still so at the next event */
    for (int64_t i = 0; i < n; i++) {
        if ((at && start[at - 1] > ts[i]) || (at < steps && start[at] <= ts[i])) at = begun(start, steps, ts[i]);
        held[i] = at && ts[i] < end[at - 1] ? (int32_t)(at - 1) : -1;
    }
}
