/* Which event of a track encloses which. */
#include <stdint.h>
#include <stdlib.h>

#if defined(_WIN32)
#define API __declspec(dllexport)
#else
#define API __attribute__((visibility("default")))
#endif

/*
 * Parent and depth of the events [first, last) of one track, as `nest` of visualprof/reader/trace/nesting.py describes.
 *
 * ts, closed: ns, sorted by (ts, -closed). parent, depth: written. Returns 0, or 1 where memory is short.
 */
API int vp_nest(const int64_t *ts, const int64_t *closed, int64_t first, int64_t last, int32_t *parent, uint16_t *depth)
{
    int64_t *open = malloc(64 * sizeof *open);
    size_t count = 0, capacity = 64;
    if (!open) return 1;
    for (int64_t i = first; i < last; i++) {
        size_t kept = 0;
        for (size_t k = 0; k < count; k++)
            if (closed[open[k]] > ts[i]) open[kept++] = open[k];
        count = kept;
        size_t above = count;
        while (above > 0 && closed[open[above - 1]] < closed[i]) above--;
        parent[i] = above ? (int32_t)open[above - 1] : -1;
        int64_t lane = above ? (int64_t)depth[open[above - 1]] + 1 : 0;
        for (size_t k = 0; k < count; k++) /* lanes are taken rarely: only where events overlap without enclosing */
            if (depth[open[k]] == lane) { lane++; k = (size_t)-1; }
        depth[i] = (uint16_t)(lane < 65535 ? lane : 65535);
        if (count == capacity) {
            int64_t *more = realloc(open, (capacity *= 2) * sizeof *open);
            if (!more) { free(open); return 1; }
            open = more;
        }
        open[count++] = i;
    }
    free(open);
    return 0;
}
