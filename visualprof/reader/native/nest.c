/* Nesting of the events of a track. */
#include <stdint.h>
#include <stdlib.h>

#include "api.h"

#define MAX_LANES 65536 /* per track; the last lane takes all events that find no free lane */

/* The time at which each lane becomes free, as a tree: each node is the earlier time of its two children. */
typedef struct {
    int64_t count; /* a power of two; also the position of the first leaf */
    int64_t *until;
} Lanes;

/* Returns the first free lane from `lane` on. */
static int64_t free_lane(Lanes lanes, int64_t lane, int64_t time)
{
    int64_t at = lanes.count + (lane < lanes.count ? lane : lanes.count - 1);
    while (lanes.until[at] > time) { /* no free lane below: go up until there is a right neighbor, then to it */
        while (at & 1) at >>= 1;
        at++;
    }
    while (at < lanes.count) {
        at *= 2;
        at += lanes.until[at] > time;
    }
    return at - lanes.count;
}

/* Occupies a lane until a time; the last lane is always free. */
static void take_lane(Lanes lanes, int64_t lane, int64_t time)
{
    if (lane == lanes.count - 1) return;
    int64_t at = lanes.count + lane;
    lanes.until[at] = time;
    while (at > 1) {
        int64_t earliest = lanes.until[at] < lanes.until[at ^ 1] ? lanes.until[at] : lanes.until[at ^ 1];
        at >>= 1;
        if (lanes.until[at] == earliest) return;
        lanes.until[at] = earliest;
    }
}

/* Frees the first `used` lanes. */
static void free_lanes(Lanes lanes, int64_t used)
{
    for (int64_t first = lanes.count, last = lanes.count + used - 1; first; first >>= 1, last >>= 1)
        for (int64_t at = first; at <= last; at++) lanes.until[at] = INT64_MIN;
}

/* Allocates lanes for the longest track, all free; `until` is NULL if memory is exhausted. */
static Lanes allocate_lanes(const int64_t *first, int64_t tracks)
{
    Lanes lanes = {64, NULL};
    for (int64_t track = 0; track < tracks; track++)
        while (lanes.count < MAX_LANES && lanes.count <= first[track + 1] - first[track]) lanes.count *= 2;
    lanes.until = malloc(2 * (size_t)lanes.count * sizeof *lanes.until);
    if (lanes.until) free_lanes(lanes, lanes.count);
    return lanes;
}

/*
 * Computes parent and depth of all events, like `nest` of visualprof/reader/trace/nesting.py. Returns 0, or 1 if memory is
 * exhausted.
 *
 * An event is enclosed by the last event that started before it and does not end before it. An event that ends before
 * it cannot enclose later events either, so the candidates form a stack.
 *
 * ts, closed: ns, each track sorted by (ts, -closed).
 * first: (tracks + 1,).
 * parent, depth: written.
 */
API int vp_nest(const int64_t *ts, const int64_t *closed, const int64_t *first, int64_t tracks, int32_t *parent,
                uint16_t *depth)
{
    Lanes lanes = allocate_lanes(first, tracks);
    if (!lanes.until) return 1;
    for (int64_t track = 0; track < tracks; track++) {
        int64_t above = -1, used = 1;
        for (int64_t i = first[track]; i < first[track + 1]; i++) {
            while (above >= 0 && closed[above] < closed[i]) above = parent[above];
            parent[i] = (int32_t)above;
            int64_t lane = free_lane(lanes, above < 0 ? 0 : (int64_t)depth[above] + 1, ts[i]);
            take_lane(lanes, lane, closed[i]);
            depth[i] = (uint16_t)lane;
            if (lane >= used) used = lane + 1;
            above = i;
        }
        free_lanes(lanes, used);
    }
    free(lanes.until);
    return 0;
}

/* Counts the events with a duration directly inside each event. count: (n,) zeros; overwritten. */
API void vp_count_children(const int32_t *parent, const int64_t *dur, int64_t n, int32_t *count)
{
    for (int64_t i = 0; i < n; i++)
        if (parent[i] >= 0 && dur[i] >= 0) count[parent[i]]++;
}

/* Finds for each event the nearest wanted event at or above it, -1 for none. Parents come before their children. */
API void vp_nearest(const int32_t *parent, const uint8_t *wanted, int64_t n, int32_t *nearest)
{
    for (int64_t i = 0; i < n; i++) nearest[i] = wanted[i] ? (int32_t)i : parent[i] >= 0 ? nearest[parent[i]] : -1;
}
