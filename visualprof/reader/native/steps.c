/* The step that contains each event. */
#include <stdint.h>

#include "api.h"

/* Returns how many steps have started at a time; starts are ascending. */
static int64_t started_steps(const int64_t *start, int64_t steps, int64_t time)
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
 * visualprof/reader/trace/step_attribution.py.
 *
 * ts: (n,) ns. start, end: (steps,) ns, start ascending. step: (n,) written.
 */
API void vp_steps_at_times(const int64_t *ts, int64_t n, const int64_t *start, const int64_t *end, int64_t steps,
                            int32_t *step)
{
    int64_t started = 0; /* number of started steps; nearly always unchanged at the next event */
    for (int64_t i = 0; i < n; i++) {
        if ((started && start[started - 1] > ts[i]) || (started < steps && start[started] <= ts[i]))
            started = started_steps(start, steps, ts[i]);
        step[i] = started && ts[i] < end[started - 1] ? (int32_t)(started - 1) : -1;
    }
}
