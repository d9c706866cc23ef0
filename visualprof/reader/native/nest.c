/* Which event of a track encloses which. */
#include <stdint.h>
#include <stdlib.h>

#if defined(_WIN32)
#define API __declspec(dllexport)
#else
#define API __attribute__((visibility("default")))
#endif

#define LANES 65536 /* of a track; the last takes all that find no other */

/*
 * The first lane from `lane` on that is free at a time.
 *
 * until: a tree over the lanes; a leaf is when its lane becomes free, a node the earliest of its leaves.
 */
static int64_t free_lane(const int64_t *until, int64_t lane, int64_t time)
{
    int64_t at = LANES + (lane < LANES ? lane : LANES - 1);
    while (until[at] > time) { /* nothing below: go up until there is a right neighbour, then to it */
        while (at & 1) at >>= 1;
        at++;
    }
    while (at < LANES) {
        at *= 2;
        at += until[at] > time;
    }
    return at - LANES;
}

/* Takes a lane until a time; the last one is always free. */
static void take_lane(int64_t *until, int64_t lane, int64_t time)
{
    if (lane == LANES - 1) return;
    int64_t at = LANES + lane;
    until[at] = time;
    while (at > 1) {
        int64_t earliest = until[at] < until[at ^ 1] ? until[at] : until[at ^ 1];
        at >>= 1;
        if (until[at] == earliest) return;
        until[at] = earliest;
    }
}

/* Frees the lanes below `lanes` of their last track. */
static void free_lanes(int64_t *until, int64_t lanes)
{
    for (int64_t first = LANES, last = LANES + lanes; first; first >>= 1, last >>= 1)
        for (int64_t at = first; at <= last && at < 2 * LANES; at++) until[at] = INT64_MIN;
}

/*
 * Parent and depth of all events, as `nest` of visualprof/reader/trace/nesting.py describes.
 *
 * ts, closed: ns, each track sorted by (ts, -closed). first: (tracks + 1,). parent, depth: written. Returns 0, or 1
 * where memory is short.
 *
 * The enclosing one of an event is the last that began before it and is not closed before it; whoever is, will not
 * enclose anything later either, which makes it a stack.
 */
API int vp_nest(const int64_t *ts, const int64_t *closed, const int64_t *first, int64_t tracks, int32_t *parent, uint16_t *depth)
{
    int64_t *until = malloc(2 * LANES * sizeof *until);
    if (!until) return 1;
    free_lanes(until, LANES);
    for (int64_t track = 0; track < tracks; track++) {
        int64_t above = -1, lanes = 0;
        for (int64_t i = first[track]; i < first[track + 1]; i++) {
            while (above >= 0 && closed[above] < closed[i]) above = parent[above];
            parent[i] = (int32_t)above;
            int64_t lane = above < 0 ? 0 : (int64_t)depth[above] + 1;
            lane = free_lane(until, lane, ts[i]);
            take_lane(until, lane, closed[i]);
            depth[i] = (uint16_t)lane;
            if (lane >= lanes) lanes = lane + 1;
            above = i;
        }
        free_lanes(until, lanes);
    }
    free(until);
    return 0;
}

/* Of each event the nearest one at or above it that is wanted, -1 for none. A parent stands before its children. */
API void vp_nearest(const int32_t *parent, const uint8_t *wanted, int64_t n, int32_t *nearest)
{
    for (int64_t i = 0; i < n; i++) nearest[i] = wanted[i] ? (int32_t)i : parent[i] >= 0 ? nearest[parent[i]] : -1;
}
